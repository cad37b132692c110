package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/upgrade"
	"github.com/knarr-project/knarr/internal/version"
)

// watchAs opens a node's watch as a user. next returns the next answer.
func watchAs(t *testing.T, s *Server, user auth.User) (status int, next func() upgrade.NodeAnswer) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serveNodeWatch(w, r.WithContext(auth.WithUser(r.Context(), user)))
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	return response.StatusCode, func() upgrade.NodeAnswer {
		t.Helper()
		var a upgrade.NodeAnswer
		if !lines.Scan() {
			t.Fatalf("the watch has ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
}

func TestANodeWatchesItsOwnTurnOnly(t *testing.T) {
	s := &Server{orders: newOrders()}
	s.orders.publish(nil)
	status, next := watchAs(t, s, auth.Component("system:node:n", auth.GroupNodes))
	if a := next(); status != http.StatusOK || a.Active || a.Order != nil {
		t.Fatalf("%d %+v without an order", status, a)
	}
	p := upgrade.Program{Build: version.Current(), SHA256: strings.Repeat("ab", 32), Size: 1}
	s.orders.publish(&upgrade.Order{Program: p, Generation: 5})
	if a := next(); !a.Active || a.Order != nil {
		t.Fatalf("%+v when an upgrade begins", a)
	}
	other, own := upgrade.Turn{Kind: upgrade.Node, Name: "m", Nonce: "1"}, upgrade.Turn{Kind: upgrade.Node, Name: "n", Nonce: "2"}
	s.orders.publish(&upgrade.Order{Program: p, Generation: 6, Turns: []upgrade.Turn{other}})
	s.orders.publish(&upgrade.Order{Program: p, Generation: 7, Turns: []upgrade.Turn{other, own}})
	if a := next(); a.Order == nil || len(a.Order.Turns) != 1 || a.Order.Turns[0] != own || a.Order.Program != p {
		t.Fatalf("%+v at the node's turn", a)
	}
	// The next Order is the same for this node.
	s.orders.publish(&upgrade.Order{Program: p, Generation: 8, Turns: []upgrade.Turn{own}})
	s.orders.publish(nil)
	if a := next(); a.Active || a.Order != nil {
		t.Fatalf("%+v after the upgrade", a)
	}
}

func TestOnlyNodesWatchForTurns(t *testing.T) {
	s := &Server{orders: newOrders()}
	for _, user := range []auth.User{auth.Component("admin"), auth.Component("system:node:n"), auth.Component("system:node:", auth.GroupNodes)} {
		if status, _ := watchAs(t, s, user); status != http.StatusForbidden {
			t.Errorf("%q: %d", user.Name, status)
		}
	}
}

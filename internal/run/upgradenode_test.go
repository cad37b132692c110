package run

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/upgrade"
	"github.com/knarr-project/knarr/internal/version"
)

// turnServer is a server that gives one node its turn.
type turnServer struct {
	watches bool // it has upgrade.WatchPath
	answers chan upgrade.NodeAnswer
	reports chan upgrade.Report

	mu   sync.Mutex // guards last
	last upgrade.NodeAnswer
}

func newTurnServer(watches bool) *turnServer {
	return &turnServer{watches: watches, answers: make(chan upgrade.NodeAnswer), reports: make(chan upgrade.Report, 1000)}
}

func (s *turnServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == upgrade.NodePath:
		var report upgrade.Report
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case s.reports <- report:
		case <-r.Context().Done():
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.last)
	case r.URL.Path == upgrade.WatchPath && s.watches:
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case answer, ok := <-s.answers:
				if !ok {
					return
				}
				_ = json.NewEncoder(w).Encode(answer)
				_ = http.NewResponseController(w).Flush()
			}
		}
	default:
		http.NotFound(w, r)
	}
}

// turnOf is an answer with a turn to a program that no server has.
func turnOf(nonce string) upgrade.NodeAnswer {
	p := upgrade.Program{Build: version.Current(), SHA256: strings.Repeat("zz", 32), Size: 1}
	return upgrade.NodeAnswer{Active: true, Order: &upgrade.Order{Program: p, Turns: []upgrade.Turn{{Kind: upgrade.Node, Name: "n", Nonce: nonce}}}}
}

// follower runs the upgrader of node n against a server until the test ends.
func follower(t *testing.T, url string, every, often time.Duration) {
	t.Helper()
	installed := filepath.Join(t.TempDir(), "knarr")
	if err := os.WriteFile(installed, nil, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	u := &upgrader{client: &http.Client{Transport: &http.Transport{}}, url: url, log: slog.New(slog.DiscardHandler), every: every, often: often}
	u.agent = &upgrade.Agent{Kind: upgrade.Node, Name: "n", DataDir: t.TempDir(), Program: installed, Restart: func() {}, Tell: u.tell, Log: u.log}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); u.run(ctx) }()
	t.Cleanup(func() { stop(); <-done; u.client.CloseIdleConnections() })
}

func TestANodeWatchesForItsTurn(t *testing.T) {
	s := newTurnServer(true)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	follower(t, server.URL, time.Hour, time.Millisecond)
	if r := <-s.reports; r.Build != version.Current() || r.Phase != upgrade.Idle {
		t.Errorf("the first report: %+v", r)
	}
	s.answers <- upgrade.NodeAnswer{}
	s.answers <- upgrade.NodeAnswer{Active: true}
	s.answers <- turnOf("1")
	for _, want := range []upgrade.Phase{upgrade.Fetching, upgrade.Failed} {
		if r := <-s.reports; r.Phase != want || r.Nonce != "1" {
			t.Errorf("%+v, want the phase %s of turn 1", r, want)
		}
	}
	close(s.answers) // the server ends the watch: the node tells its state and watches again
	if r := <-s.reports; r.Phase != upgrade.Failed {
		t.Errorf("the report after a watch: %+v", r)
	}
}

func TestANodeOfAServerWithoutWatchesAsksForItsTurn(t *testing.T) {
	s := newTurnServer(false)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	follower(t, server.URL, 5*time.Millisecond, time.Millisecond)
	<-s.reports
	<-s.reports
	s.mu.Lock()
	s.last = turnOf("1")
	s.mu.Unlock()
	for r := range s.reports {
		if r.Phase == upgrade.Failed && r.Nonce == "1" {
			break
		}
	}
}

func TestAnAnswerThatIsNotUsableEndsTheWatch(t *testing.T) {
	body := ""
	u := &upgrader{url: "http://server", client: &http.Client{Transport: roundTrip(func(*http.Request) *http.Response {
		w := httptest.NewRecorder()
		_, _ = w.WriteString(body)
		return w.Result()
	})}}
	for name, c := range map[string]struct {
		body    string
		answers int
		want    string
	}{
		"two answers": {"{}\n{\"active\":true}\n", 2, ""},
		"no JSON":     {"{}\nno JSON\n{}\n", 1, "not usable"},
		"nothing":     {"", 0, "without an answer"}, // an error, so that it is not repeated at once
		"too long":    {strings.Repeat("x", answerLimit+1), 0, "too long"},
	} {
		body = c.body
		got := 0
		err := u.watch(t.Context(), func(*upgrade.NodeAnswer) { got++ })
		if got != c.answers || (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d answers, %v", name, got, err)
		}
	}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

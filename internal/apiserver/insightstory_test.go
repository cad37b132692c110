package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/trace"
)

// forwarded authenticates requests as the user whom another server names, or as userHeader does.
type forwarded struct{}

func (forwarded) Authenticate(r *http.Request) (auth.User, bool, error) {
	if name := r.Header.Get("X-Remote-User"); name != "" {
		return auth.User{Name: name, Groups: r.Header.Values("X-Remote-Group")}, true, nil
	}
	return userHeader{}.Authenticate(r)
}

func askStory(t *testing.T, s *Server, query string) *trace.Tree {
	t.Helper()
	code, _, body := do(t, s, "GET", "/insight/v1/story?"+query, "", "Test-User", "someone")
	var tree trace.Tree
	if err := json.Unmarshal([]byte(body), &tree); code != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s %v", query, code, body, err)
	}
	return &tree
}

func TestAStoryIsGatheredFromAllServersWithTheUsersRights(t *testing.T) {
	var asked sync.Map
	peer := tracedServer(t)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Header.Get("X-Remote-User"), true)
		peer.Handler().ServeHTTP(w, r)
	}))
	defer front.Close()
	peer.access.current.Store(&Security{Authenticator: forwarded{}, Authorizer: noSecrets{}})
	dead := httptest.NewServer(nil)
	dead.Close()

	s := tracedServer(t, func(c *Config) {
		c.Peers = func(context.Context) ([]Peer, error) {
			return []Peer{{Name: "b", URL: front.URL}, {Name: "c", URL: dead.URL}}, nil
		}
		c.PeerHTTP = func() *http.Client { return &http.Client{Transport: &http.Transport{}} }
		c.Security.Authorizer = noSecrets{}
	})
	s.access.current.Store(&Security{Authenticator: userHeader{}, Authorizer: noSecrets{}})
	do(t, s, "POST", configMaps, `{"metadata":{"name":"root"}}`, "Test-User", "someone", "Audit-ID", "a-1")
	root := askInsight(t, s, "/insight/v1/changes?request=a-1").Records[0].Revision
	// The other server made two writes because of this one.
	for i, resource := range []string{"configmaps", "secrets"} {
		peer.cfg.Causes.Append(&causes.Record{
			Revision: root + 10 + int64(i), Time: s.clock(), Object: causes.Object{Resource: resource, Namespace: "default", Name: "child"},
			UID: "u" + resource, Verb: "create", Effect: causes.Created, Actor: "system:kube-x", Because: because.Of(root),
		})
	}
	for _, query := range []string{"change=a-1", "resource=configmaps&namespace=default&name=root", fmt.Sprint("change=", root)} {
		tree := askStory(t, s, query)
		if len(tree.Hops) != 1 || len(tree.Hops[0].Hops) != 1 || tree.Hops[0].Hops[0].Name != "child" || tree.Hidden != 1 {
			t.Errorf("%s: %+v", query, tree)
		}
		if len(tree.Missing) != 1 || tree.Missing["c ("+dead.URL+")"] == "" {
			t.Errorf("%s: missing %v", query, tree.Missing)
		}
	}
	users := []any{}
	asked.Range(func(user, _ any) bool { users = append(users, user); return true })
	if len(users) != 1 || users[0] != "someone" {
		t.Errorf("the other server was asked as %q", users)
	}
}

func TestWrongQuestionsForStoriesAreRefused(t *testing.T) {
	s := tracedServer(t)
	for query, want := range map[string]int{
		"": 400, "resource=pods": 400, "change=0": 400, "change=1&resource=pods&name=x": 400, "change=999999": 404, "change=never": 404,
		"resource=configmaps&namespace=default&name=never": 404,
	} {
		if code, _, body := do(t, s, "GET", "/insight/v1/story?"+query, "", "Test-User", "someone"); code != want {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	if code, _, _ := do(t, newTestServer(t), "GET", "/insight/v1/story?change=1", ""); code != 503 {
		t.Error(code)
	}
}

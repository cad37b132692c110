package apiserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/store"
)

// betweenStore calls a function once before the next commit of a key that contains part.
type betweenStore struct {
	store.Store
	next *atomic.Pointer[between]
}

type between struct {
	part string
	call func()
}

func (s betweenStore) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	if b := s.next.Load(); b != nil {
		for _, op := range ops {
			if strings.Contains(op.Key, b.part) && s.next.CompareAndSwap(b, nil) {
				b.call()
			}
		}
	}
	return s.Store.Commit(ctx, conditions, ops...)
}

// interruptedServers are two servers. before sets what happens before the second one's next commit
// of a key.
func interruptedServers(t *testing.T) (servers []*Server, before func(part string, call func())) {
	next := &atomic.Pointer[between]{}
	servers = severalServers(t, 2, func(i int, c *Config) {
		if i == 1 {
			c.Store = betweenStore{c.Store, next}
		}
	})
	for _, s := range servers {
		chain, err := admission.Default(t.Context(), s.Client(auth.Component("tester", auth.GroupMasters)), admission.Config{Disable: []string{"ServiceAccount"}, Authorizer: auth.Masters{}, Served: s.Served()})
		if err != nil {
			t.Fatal(err)
		}
		s.Use(Security{Authorizer: allowAll{}, Admission: chain})
		if err := s.boot.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return servers, func(part string, call func()) { next.Store(&between{part, call}) }
}

// removeNamespace removes a namespace as its controller does, which finds no content.
func removeNamespace(t *testing.T, s *Server, name string) {
	mustDo(t, s, 200, "DELETE", "/api/v1/namespaces/"+name, "")
	mustDo(t, s, 200, "PUT", "/api/v1/namespaces/"+name+"/finalize", `{"metadata":{"name":"`+name+`"},"spec":{"finalizers":[]}}`)
}

func TestNoObjectOutlivesItsNamespace(t *testing.T) {
	t.Parallel()
	servers, before := interruptedServers(t)
	for name, tc := range map[string]struct {
		meanwhile func(ns string)
		code      int
		text      string
	}{
		"terminating": {func(ns string) { mustDo(t, servers[0], 200, "DELETE", "/api/v1/namespaces/"+ns, "") }, 403, "because it is being terminated"},
		"gone":        {func(ns string) { removeNamespace(t, servers[0], ns) }, 404, "namespaces \\\"gone\\\" not found"},
		"labelled": {func(ns string) {
			mustDo(t, servers[0], 200, "PATCH", "/api/v1/namespaces/"+ns, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json")
		}, 201, `"name":"m"`},
	} {
		mustDo(t, servers[0], 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`)
		before("/configmaps/"+name, func() { tc.meanwhile(name) })
		code, _, body := do(t, servers[1], "POST", "/api/v1/namespaces/"+name+"/configmaps", `{"metadata":{"name":"m"}}`)
		if code != tc.code || !strings.Contains(body, tc.text) {
			t.Errorf("%s: %d %s", name, code, body)
		}
		if left := strings.Contains(mustDo(t, servers[0], 200, "GET", "/api/v1/namespaces/"+name+"/configmaps", ""), `"name":"m"`); left != (code == 201) {
			t.Errorf("%s: the object is stored: %v", name, left)
		}
	}
}

func TestNoObjectOutlivesItsDefinition(t *testing.T) {
	t.Parallel()
	servers, before := interruptedServers(t)
	for _, s := range servers {
		s.runInBackground(s.custom.Run)
	}
	const definitions, merge = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/merge-patch+json"
	round := 0
	for name, tc := range map[string]struct {
		meanwhile func(definition string)
		code      int
		text      string
	}{
		"terminating": {func(definition string) { mustDo(t, servers[0], 200, "DELETE", definitions+"/"+definition, "") }, 405, "terminating"},
		"with another schema": {func(definition string) {
			mustDo(t, servers[0], 200, "PATCH", definitions+"/"+definition, `{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"string"}}}}}]}}`, "Content-Type", merge)
		}, 503, "has changed during the request"},
		"with another label": {func(definition string) {
			mustDo(t, servers[0], 200, "PATCH", definitions+"/"+definition, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge)
		}, 201, `"name":"one"`},
	} {
		round++
		group := fmt.Sprintf("g%d.example.com", round)
		mustDo(t, servers[0], 201, "POST", definitions, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.`+group+`"},"spec":{"group":"`+group+`","scope":"Namespaced",
			"names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
		eventually(t, func() error {
			if out := mustDo(t, servers[1], 200, "GET", definitions+"/things."+group, ""); !strings.Contains(out, `"InitialNamesAccepted"`) {
				return fmt.Errorf("not established: %s", out)
			}
			return nil
		})
		things := "/apis/" + group + "/v1/namespaces/default/things"
		before("/"+group+"/things/", func() { tc.meanwhile("things." + group) })
		if code, _, body := do(t, servers[1], "POST", things, `{"apiVersion":"`+group+`/v1","kind":"Thing","metadata":{"name":"one"}}`); code != tc.code || !strings.Contains(body, tc.text) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

// Deletions, patches, finalizers and generated names through all servers at once.
func TestWritersOfAllServersCompete(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 3)
	const maps, rounds = "/api/v1/namespaces/default/configmaps", 20
	mustDo(t, servers[0], 201, "POST", maps, `{"metadata":{"name":"counter","finalizers":["example.com/keep"]},"data":{}}`)
	var work sync.WaitGroup
	var mu sync.Mutex
	generated := map[string]bool{}
	for i, s := range servers {
		work.Go(func() {
			for n := range rounds {
				// A patch without a resourceVersion never conflicts: it is applied to the newest
				// state.
				mustDo(t, s, 200, "PATCH", maps+"/counter", fmt.Sprintf(`{"data":{"s%d-%d":"x"}}`, i, n), "Content-Type", "application/merge-patch+json")
				out := mustDo(t, s, 201, "POST", maps, `{"metadata":{"generateName":"g-","labels":{"of":"all"}}}`)
				_, rest, _ := strings.Cut(out, `"name":"`)
				name, _, _ := strings.Cut(rest, `"`)
				mu.Lock()
				if generated[name] {
					t.Errorf("the name %s was generated twice", name)
				}
				generated[name] = true
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if got := strings.Count(mustDo(t, servers[1], 200, "GET", maps+"/counter", ""), `":"x"`); got != len(servers)*rounds {
		t.Errorf("%d patches were kept, want %d", got, len(servers)*rounds)
	}
	for _, s := range servers {
		work.Go(func() { mustDo(t, s, 200, "DELETE", maps+"?labelSelector=of%3Dall", "") })
		work.Go(func() { mustDo(t, s, 200, "DELETE", maps+"/counter", "") })
	}
	work.Wait()
	if out := mustDo(t, servers[2], 200, "GET", maps, ""); strings.Contains(out, `"g-`) || !strings.Contains(out, `"deletionTimestamp"`) {
		t.Errorf("after the deletion: %s", out)
	}
	work.Go(func() {
		mustDo(t, servers[0], 200, "PATCH", maps+"/counter", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
	})
	work.Wait()
	mustDo(t, servers[1], 404, "GET", maps+"/counter", "")
}

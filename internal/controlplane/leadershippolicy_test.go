package controlplane

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

// An earlier version has stored a role with fewer rules than the controller of this version needs.
func TestControllersStartWithTheRolesOfTheirVersion(t *testing.T) {
	const name = "system:controller:deployment-controller"
	s := newSea(t)
	old := s.launch(t, "oak")
	leader(t, old)
	old.makeNode(t, "n")
	old.deploy(t, "one", 1)
	old.sails(t, "one", 1)
	role, err := client.Get[*rbacv1.ClusterRole](t.Context(), old.admin, "", name)
	if err != nil {
		t.Fatal(err)
	}
	role = role.DeepCopy()
	role.Rules = role.Rules[:1]
	if _, err := client.Update(t.Context(), old.admin, role); err != nil {
		t.Fatal(err)
	}
	old.stop(t)
	// Work for the controller at its start.
	for _, kind := range []string{"/registry/replicasets/", "/registry/pods/"} {
		r, err := s.Range(t.Context(), kind, store.RangeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.KVs {
			if _, err := s.Store.Commit(t.Context(), nil, store.Op{Key: kv.Key, Delete: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var logs bytes.Buffer
	var late atomic.Bool
	s.logs = &logs
	s.before = func(_, key string) {
		if key == "/registry/clusterroles/"+name {
			time.Sleep(500 * time.Millisecond) // gives controllers that do not wait time to fail
			late.Store(true)
		}
	}
	next := s.launch(t, "ash")
	next.sails(t, "one", 1)
	next.stop(t)
	if !late.Load() {
		t.Error("the role was not updated")
	}
	for line := range strings.Lines(logs.String()) {
		if strings.Contains(line, "forbidden") {
			t.Error(line)
		}
	}
}

package apiserver

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

const testTerm = "/registry/knarr/term"

// beginTerm begins a term and returns its fence.
func beginTerm(t testing.TB, s *Server) *store.Fence {
	t.Helper()
	res, err := s.cfg.Store.Commit(t.Context(), nil, store.Op{Key: testTerm, Value: []byte("leader")})
	if err != nil {
		t.Fatal(err)
	}
	return &store.Fence{Conditions: []store.Condition{{Key: testTerm, ModRevision: res.Revision}}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "ship"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "x"}}},
	}
}

// All writes of a leader's components are fenced: each verb, subresources, and writes beside the
// object itself.
func TestALeaderWritesNothingAfterItsTerm(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")} })
	ctx, plain := t.Context(), s.Client(auth.Component("tester"))
	ensure := func(obj client.Object) {
		t.Helper()
		if _, err := plain.Create(ctx, api.ResourceOf(obj), obj.GetNamespace(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ensure(configMap("one"))
	ensure(pod("one"))
	ensure(pod("two"))
	ensure(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})

	type write = func(c client.Interface) error
	pods, maps := api.ResourceOf(&corev1.Pod{}), api.ResourceOf(&corev1.ConfigMap{})
	writes := []struct {
		name string
		do   write
	}{
		{"create", func(c client.Interface) error {
			_, err := client.Create(ctx, c, configMap("new"))
			return err
		}},
		{"create with allocated addresses", func(c client.Interface) error {
			_, err := client.Create(ctx, c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
			return err
		}},
		{"create an event", func(c client.Interface) error {
			_, err := client.Create(ctx, c, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}})
			return err
		}},
		{"update", func(c client.Interface) error {
			obj := configMap("one")
			obj.Data["a"] = "2"
			_, err := client.Update(ctx, c, obj)
			return err
		}},
		{"update of a status", func(c client.Interface) error {
			obj, err := client.Get[*corev1.Pod](ctx, c, "default", "one")
			if err != nil {
				return err
			}
			obj.Status.Message = "changed"
			_, err = client.UpdateStatus(ctx, c, obj)
			return err
		}},
		{"patch", func(c client.Interface) error {
			_, err := c.Patch(ctx, maps, "default", "one", types.MergePatchType, []byte(`{"data":{"a":"3"}}`), metav1.PatchOptions{})
			return err
		}},
		{"apply", func(c client.Interface) error {
			_, err := c.Patch(ctx, maps, "default", "applied", types.ApplyYAMLPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`), metav1.PatchOptions{})
			return err
		}},
		{"bind", func(c client.Interface) error {
			b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Target: corev1.ObjectReference{Kind: "Node", Name: "sea"}}
			_, err := c.CreateSub(ctx, pods, "default", "one", "binding", b, metav1.CreateOptions{})
			return err
		}},
		{"evict", func(c client.Interface) error {
			_, err := c.CreateSub(ctx, pods, "default", "two", "eviction", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "two"}}, metav1.CreateOptions{})
			return err
		}},
		{"delete", func(c client.Interface) error {
			return client.Delete[*corev1.Service](ctx, c, "default", "one", metav1.DeleteOptions{})
		}},
		{"delete a collection", func(c client.Interface) error {
			return c.DeleteCollection(ctx, maps, "default", metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
	}
	old := s.FencedClient(auth.Component("old"), beginTerm(t, s))
	current := s.FencedClient(auth.Component("current"), beginTerm(t, s))
	before, err := s.cfg.Store.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range writes {
		err := w.do(old)
		var status *apierrors.StatusError
		if !errors.Is(err, store.ErrFenced) || !errors.As(err, &status) || apierrors.IsConflict(err) {
			t.Errorf("%s after the term: %v", w.name, err)
		}
	}
	if after, err := s.cfg.Store.Revision(ctx); err != nil || after != before {
		t.Errorf("the store is at revision %d, was at %d: %v", after, before, err)
	}
	for _, w := range writes {
		if err := w.do(current); err != nil {
			t.Errorf("%s during the term: %v", w.name, err)
		}
	}
}

// An ordinary conflict is one with a fence too.
func TestConflictsOfALeaderAreConflicts(t *testing.T) {
	s := newTestServer(t)
	c := s.FencedClient(auth.Component("leader"), beginTerm(t, s))
	made, err := client.Create(t.Context(), c, configMap("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), c, configMap("one")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create twice: %v", err)
	}
	changed := made.DeepCopy()
	changed.Data["b"] = "2"
	if _, err := client.Update(t.Context(), c, changed); err != nil {
		t.Fatal(err)
	}
	made.Data["b"] = "3"
	if _, err := client.Update(t.Context(), c, made); !apierrors.IsConflict(err) {
		t.Errorf("stale update: %v", err)
	}
}

func TestCatchUpShowsAllCommittedWrites(t *testing.T) {
	s := newTestServer(t)
	view, err := client.Open[*corev1.ConfigMap](t.Context(), s.Client(auth.Component("tester")), client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Another server's write, and one that no cache shows.
	other, err := New(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	if _, err := client.Create(t.Context(), other.Client(auth.Component("tester")), configMap("one")); err != nil {
		t.Fatal(err)
	}
	beginTerm(t, s)
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := view.Get("default", "one"); !ok {
		t.Error("the view does not show it")
	}
}

func BenchmarkPatchInProcess(b *testing.B) {
	for _, name := range []string{"plain", "fenced"} {
		b.Run(name, func(b *testing.B) {
			s := benchServer(b)
			c := s.Client(auth.Component("bench"))
			if name == "fenced" {
				c = s.FencedClient(auth.Component("bench"), beginTerm(b, s))
			}
			var obj runtime.Object = configMap("one")
			res := api.ResourceOf(obj)
			if _, err := c.Create(b.Context(), res, "default", obj, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				if _, err := c.Patch(b.Context(), res, "default", "one", types.MergePatchType, fmt.Appendf(nil, `{"data":{"a":"%d"}}`, i), metav1.PatchOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

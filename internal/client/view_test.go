package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func TestMain(m *testing.M) {
	cache.DetectMutations = true
	m.Run()
}

// fixture holds pods on which Views can be opened, in process or over HTTP.
type fixture interface {
	view(t *testing.T, ctx context.Context, scope client.Scope) client.View
	put(t *testing.T, p *corev1.Pod) int64 // creates or replaces
	remove(t *testing.T, namespace, name string) int64
	// lose makes open watches fall so far behind that they must list again.
	lose(t *testing.T)
}

// testViews tests each kind of View.
func testViews(t *testing.T, open func(t *testing.T) fixture) {
	tests := []struct {
		name string
		test func(t *testing.T, w fixture)
	}{
		{"a view shows all objects in key order", viewShows},
		{"a view reaches the revision of a write", viewReaches},
		{"a namespaced view shows its namespace only", viewNamespace},
		{"a view with a label selector shows the objects that match now", viewLabels},
		{"a view with a field selector shows the objects that match now", viewFields},
		{"a view of one name shows that object in its namespaces", viewOfOneName},
		{"a metadata view shows metadata only", viewMetadata},
		{"an index follows the changes", viewIndex},
		{"a subscriber gets each change once, in order, after the view shows it", viewSubscribe},
		{"a subscriber of a filtered view gets an object as added or deleted when it begins or ceases to match", viewSubscribeFiltered},
		{"a subscriber that falls behind gets the changes it missed", viewFallsBehind},
		{"a subscription ends with its context", viewEnds},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open(t)) })
	}
}

func pod(namespace, name, node string, lbls map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: lbls, UID: types.UID(namespace + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func reach(t *testing.T, v client.View, rev int64) {
	t.Helper()
	if err := v.WaitFor(short(t), rev); err != nil {
		t.Fatal(err)
	}
}

func named(objs []runtime.Object) string {
	var out []string
	for _, o := range objs {
		acc := o.(metav1.Object)
		out = append(out, acc.GetNamespace()+"/"+acc.GetName())
	}
	return strings.Join(out, " ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func viewShows(t *testing.T, w fixture) {
	w.put(t, pod("b", "1", "", nil))
	w.put(t, pod("a", "2", "", map[string]string{"c": "red"}))
	v := w.view(t, t.Context(), client.Scope{})
	rev := w.put(t, pod("a", "1", "", nil))
	reach(t, v, rev)
	expect(t, "all", named(v.List("", nil)), "a/1 a/2 b/1")
	expect(t, "namespace a", named(v.List("a", nil)), "a/1 a/2")
	expect(t, "red", named(v.List("", labels.SelectorFromSet(labels.Set{"c": "red"}))), "a/2")
	obj, ok := v.Get("a", "1")
	if !ok || obj.(*corev1.Pod).ResourceVersion != fmt.Sprint(rev) {
		t.Errorf("a/1: %v, %v", obj, ok)
	}
	if _, ok := v.Get("a", "3"); ok {
		t.Error("a/3 is there")
	}
	reach(t, v, w.remove(t, "a", "1"))
	if _, ok := v.Get("a", "1"); ok {
		t.Error("a/1 is still there")
	}
}

func viewReaches(t *testing.T, w fixture) {
	v := w.view(t, t.Context(), client.Scope{})
	for i := range 20 {
		rev := w.put(t, pod("a", "1", fmt.Sprint(i), nil))
		reach(t, v, rev)
		obj, _ := v.Get("a", "1")
		if v.Revision() < rev || obj.(*corev1.Pod).Spec.NodeName != fmt.Sprint(i) {
			t.Fatalf("after write %d the view is at %d and shows %v", i, v.Revision(), obj)
		}
	}
	brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := v.WaitFor(brief, v.Revision()+1000); !errors.Is(err, cache.ErrFuture) {
		t.Errorf("waiting for the future: %v", err)
	}
}

func viewNamespace(t *testing.T, w fixture) {
	w.put(t, pod("a", "1", "", nil))
	w.put(t, pod("b", "1", "", nil))
	v := w.view(t, t.Context(), client.Scope{Namespace: "a"})
	w.put(t, pod("b", "2", "", nil))
	rev := w.put(t, pod("a", "2", "", nil))
	reach(t, v, rev)
	expect(t, "all", named(v.List("", nil)), "a/1 a/2")
	expect(t, "b", named(v.List("b", nil)), "")
	if _, ok := v.Get("b", "1"); ok {
		t.Error("b/1 is shown")
	}
}

func viewLabels(t *testing.T, w fixture) {
	red, blue := map[string]string{"c": "red"}, map[string]string{"c": "blue"}
	w.put(t, pod("a", "1", "", red))
	w.put(t, pod("a", "2", "", blue))
	v := w.view(t, t.Context(), client.Scope{LabelSelector: "c=red"})
	expect(t, "before", named(v.List("", nil)), "a/1")
	w.put(t, pod("a", "1", "", blue))
	reach(t, v, w.put(t, pod("a", "2", "", red)))
	expect(t, "after", named(v.List("", nil)), "a/2")
}

func viewFields(t *testing.T, w fixture) {
	w.put(t, pod("a", "1", "n1", nil))
	w.put(t, pod("a", "2", "", nil))
	w.put(t, pod("b", "4", "n1", nil))
	v := w.view(t, t.Context(), client.Scope{FieldSelector: "spec.nodeName=n1"})
	expect(t, "before", named(v.List("", nil)), "a/1 b/4")
	w.put(t, pod("a", "3", "n2", nil))
	w.remove(t, "a", "1")
	reach(t, v, w.put(t, pod("a", "2", "n1", nil)))
	expect(t, "after", named(v.List("", nil)), "a/2 b/4")
	expect(t, "in b", named(v.List("b", nil)), "b/4")
	if _, ok := v.Get("a", "3"); ok {
		t.Error("a pod of another node is shown")
	}
}

func viewOfOneName(t *testing.T, w fixture) {
	w.put(t, pod("a", "1", "n1", nil))
	w.put(t, pod("b", "1", "n2", nil))
	w.put(t, pod("b", "2", "n2", nil))
	one := w.view(t, t.Context(), client.Scope{Namespace: "a", FieldSelector: "metadata.name=1"})
	each := w.view(t, t.Context(), client.Scope{FieldSelector: "metadata.name=1"})
	expect(t, "one, before", named(one.List("", nil)), "a/1")
	expect(t, "of each namespace, before", named(each.List("", nil)), "a/1 b/1")
	w.remove(t, "b", "1")
	reach(t, each, w.put(t, pod("c", "1", "n1", nil)))
	expect(t, "of each namespace, after", named(each.List("", nil)), "a/1 c/1")
	reach(t, one, w.put(t, pod("a", "1", "n2", nil)))
	expect(t, "one, changed", named(one.List("a", nil)), "a/1")
	expect(t, "one, of another namespace", named(one.List("b", nil)), "")
}

func viewMetadata(t *testing.T, w fixture) {
	w.put(t, pod("a", "1", "n1", map[string]string{"c": "red"}))
	v := w.view(t, t.Context(), client.Scope{MetadataOnly: true})
	obj, ok := v.Get("a", "1")
	p, isMeta := obj.(*metav1.PartialObjectMetadata)
	if !ok || !isMeta || p.Labels["c"] != "red" || p.UID != "a1" {
		t.Fatalf("got %#v", obj)
	}
	var got log
	synced, _ := v.Subscribe(t.Context(), got.add)
	<-synced
	w.put(t, pod("a", "1", "n2", nil))
	w.remove(t, "a", "1")
	got.wait(t, "Added a/1; Modified a/1; Deleted a/1")
}

func viewIndex(t *testing.T, w fixture) {
	w.put(t, pod("a", "1", "n1", nil))
	v := w.view(t, t.Context(), client.Scope{Namespace: "a"})
	v.AddIndex("node", func(o runtime.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
	v.AddIndex("node", func(o runtime.Object) []string { return []string{"the first stays"} })
	w.put(t, pod("b", "other", "n1", nil))
	reach(t, v, w.put(t, pod("a", "2", "n1", nil)))
	expect(t, "n1", named(v.ByIndex("node", "n1")), "a/1 a/2")
	reach(t, v, w.put(t, pod("a", "1", "n2", nil)))
	expect(t, "n1", named(v.ByIndex("node", "n1")), "a/2")
	expect(t, "n2", named(v.ByIndex("node", "n2")), "a/1")
	defer func() {
		if recover() == nil {
			t.Error("an index that was never added gives an answer")
		}
	}()
	v.ByIndex("other", "")
}

// log records a subscriber's events.
type log struct {
	mu     sync.Mutex
	events []string
	hold   chan struct{} // if set, add waits for it to be closed
	wrong  string
	view   client.View
}

func (l *log) add(e client.Event) {
	if l.hold != nil {
		<-l.hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	acc := e.Object.(metav1.Object)
	l.events = append(l.events, fmt.Sprintf("%s %s/%s", e.Type, acc.GetNamespace(), acc.GetName()))
	if (e.Old == nil) != (e.Type == client.Added) {
		l.wrong = fmt.Sprintf("%s with old %v", e.Type, e.Old)
	}
	if l.view != nil && e.Type != client.Deleted {
		now, ok := l.view.Get(acc.GetNamespace(), acc.GetName())
		if ok && rv(now) < rv(e.Object) {
			l.wrong = fmt.Sprintf("the view shows %d when the event has %d", rv(now), rv(e.Object))
		}
	}
}

func rv(o runtime.Object) (n int64) {
	fmt.Sscan(o.(metav1.Object).GetResourceVersion(), &n)
	return n
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.events, "; ")
}

func (l *log) wait(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && len(l.text()) < len(want); {
		time.Sleep(time.Millisecond)
	}
	if got := l.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if l.wrong != "" {
		t.Error(l.wrong)
	}
}

func viewSubscribe(t *testing.T, w fixture) {
	w.put(t, pod("a", "1", "", nil))
	w.put(t, pod("a", "2", "", nil))
	v := w.view(t, t.Context(), client.Scope{})
	got := log{view: v}
	synced, _ := v.Subscribe(t.Context(), got.add)
	<-synced
	if got.text() != "Added a/1; Added a/2" {
		t.Errorf("when synced: %s", got.text())
	}
	want := "Added a/1; Added a/2"
	for i := range 50 {
		w.put(t, pod("a", "2", fmt.Sprint(i), nil))
		want += "; Modified a/2"
	}
	w.remove(t, "a", "1")
	w.put(t, pod("a", "3", "", nil))
	got.wait(t, want+"; Deleted a/1; Added a/3")
}

func viewSubscribeFiltered(t *testing.T, w fixture) {
	red, blue := map[string]string{"c": "red"}, map[string]string{"c": "blue"}
	w.put(t, pod("a", "1", "", red))
	v := w.view(t, t.Context(), client.Scope{LabelSelector: "c=red"})
	got := log{view: v}
	synced, _ := v.Subscribe(t.Context(), got.add)
	<-synced
	w.put(t, pod("a", "2", "", blue))
	w.put(t, pod("a", "1", "", blue))
	w.put(t, pod("a", "2", "", red))
	w.put(t, pod("a", "2", "n", red))
	w.remove(t, "a", "2")
	got.wait(t, "Added a/1; Deleted a/1; Added a/2; Modified a/2; Deleted a/2")
}

func viewFallsBehind(t *testing.T, w fixture) {
	w.put(t, pod("a", "1", "", nil))
	w.put(t, pod("a", "2", "", nil))
	w.put(t, pod("a", "3", "", nil))
	v := w.view(t, t.Context(), client.Scope{})
	got := log{view: v, hold: make(chan struct{})}
	synced, _ := v.Subscribe(t.Context(), got.add)
	w.put(t, pod("a", "1", "n", nil))
	w.remove(t, "a", "2")
	w.remove(t, "a", "3")
	other := pod("a", "3", "", nil)
	other.UID = "another"
	w.put(t, other)
	reach(t, v, w.put(t, pod("a", "4", "", nil)))
	w.lose(t)
	close(got.hold)
	<-synced
	// The subscriber ends with the current state, whether it began before or after the changes.
	last := w.put(t, pod("z", "end", "", nil))
	reach(t, v, last)
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && !strings.HasSuffix(got.text(), "z/end"); {
		time.Sleep(time.Millisecond)
	}
	state := map[string]bool{}
	for _, e := range strings.Split(got.text(), "; ") {
		what, name, _ := strings.Cut(e, " ")
		if state[name] != (what != "Added") {
			t.Errorf("%s although known: %v (all: %s)", e, state[name], got.text())
		}
		state[name] = what != "Deleted"
	}
	var there []string
	for name, is := range state {
		if is {
			there = append(there, name)
		}
	}
	slices.Sort(there)
	expect(t, "in the end", strings.Join(there, " "), "a/1 a/3 a/4 z/end")
	if got.wrong != "" {
		t.Error(got.wrong)
	}
}

func viewEnds(t *testing.T, w fixture) {
	v := w.view(t, t.Context(), client.Scope{})
	ctx, cancel := context.WithCancel(t.Context())
	var got log
	synced, done := v.Subscribe(ctx, got.add)
	<-synced
	select {
	case <-done:
		t.Fatal("ended before its context")
	case <-time.After(10 * time.Millisecond):
	}
	cancel()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("does not end")
	}
}

// localFixture is a store with a cache.
type localFixture struct {
	store store.Store
	cache *cache.Cache
}

const pods = "/registry/pods"

var podSchema = cache.Schema{
	Prefix: pods,
	Decode: func(stored []byte, revision int64) (runtime.Object, error) {
		p := &corev1.Pod{}
		if err := json.Unmarshal(stored, p); err != nil {
			return nil, err
		}
		p.ResourceVersion = fmt.Sprint(revision)
		return p, nil
	},
	Header: func(obj runtime.Object) cache.Header {
		p := obj.(*corev1.Pod)
		return cache.Header{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Labels: cache.PairsOf(p.Labels), Fields: cache.PairsOf(fields.Set{
			"spec.nodeName": p.Spec.NodeName,
		})}
	},
}

func newLocalFixture(t *testing.T) *localFixture {
	return localFixtureOf(t, func(s store.Store) store.Store { return s })
}

// localFixtureOf makes a fixture whose cache reads through the store that shown returns.
func localFixtureOf(t *testing.T, shown func(store.Store) store.Store) *localFixture {
	s, err := etcd.Open(context.Background(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(shown(s))
	t.Cleanup(func() { c.Close(); s.Close() })
	return &localFixture{store: s, cache: c}
}

func (w *localFixture) view(t *testing.T, ctx context.Context, scope client.Scope) client.View {
	v, err := client.NewLocalView(ctx, client.LocalSource{
		Kind:   func(context.Context) (*cache.Kind, error) { return w.cache.Kind(podSchema) },
		Prefix: pods, Namespaced: true,
	}, scope)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *localFixture) put(t *testing.T, p *corev1.Pod) int64 {
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.store.Commit(t.Context(), nil, store.Op{Key: pods + "/" + p.Namespace + "/" + p.Name, Value: b})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

func (w *localFixture) remove(t *testing.T, namespace, name string) int64 {
	r, err := w.store.Commit(t.Context(), nil, store.Op{Key: pods + "/" + namespace + "/" + name, Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

func (w *localFixture) lose(*testing.T) { w.cache.Forget(pods) }

func TestViewsInProcess(t *testing.T) {
	testViews(t, func(t *testing.T) fixture { return newLocalFixture(t) })
}

// A component that is started again opens new Views, whose indexes each write would pay for.
func TestAViewThatEndsLeavesNoIndexes(t *testing.T) {
	w := newLocalFixture(t)
	w.put(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}, Spec: corev1.PodSpec{NodeName: "sea"}})
	ctx, cancel := context.WithCancel(t.Context())
	v := w.view(t, ctx, client.Scope{})
	byNode := func(obj runtime.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }
	v.AddIndex("node", byNode)
	kind, err := w.cache.Kind(podSchema)
	if err != nil {
		t.Fatal(err)
	}
	if got := kind.Indexes(); got != 1 {
		t.Fatalf("an open view has %d indexes", got)
	}
	cancel()
	for deadline := time.Now().Add(time.Minute); kind.Indexes() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d indexes are left", kind.Indexes())
		}
	}
	if got := v.ByIndex("node", "sea"); len(got) != 1 {
		t.Errorf("a reader of the ended view finds %d pods", len(got))
	}
	v.AddIndex("again", byNode)
	if got := kind.Indexes(); got != 0 {
		t.Errorf("the ended view has made %d indexes", got)
	}
}

package clienttest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

func view(t *testing.T, c client.Interface, in client.Scope) client.ViewOf[*corev1.ConfigMap] {
	t.Helper()
	v, err := client.Open[*corev1.ConfigMap](t.Context(), c, in)
	return must(t, v, err)
}

func ownWrites(t *testing.T, c client.Interface) {
	ctx := short(t)
	views := []client.ViewOf[*corev1.ConfigMap]{
		view(t, c, client.Scope{}),
		view(t, c, client.Scope{LabelSelector: "c=red"}),
		view(t, c, client.Scope{Namespace: "other"}),
		view(t, c, client.Scope{FieldSelector: "metadata.name=one"}),
	}
	check := func(what string, all, red, other, one string) {
		t.Helper()
		for i, want := range []string{all, red, other, one} {
			var got []string
			for _, o := range views[i].List("", nil) {
				got = append(got, o.Name+o.Data["v"])
			}
			expect(t, fmt.Sprintf("%s, view %d", what, i), strings.Join(got, " "), want)
		}
	}
	cm := create(t, c, configMap("one", "c=red"))
	check("created", "one", "one", "", "one")
	cm.Data = map[string]string{"v": "1"}
	cm, err := client.Update(ctx, c, cm)
	must(t, cm, err)
	check("updated", "one1", "one1", "", "one1")
	create(t, c, configMap("two"))
	check("another created", "one1 two", "one1", "", "one1")
	patch := []byte(`{"data":{"v":"2"},"metadata":{"labels":{"c":"blue"},"finalizers":["example.com/hold"]}}`)
	_, err = client.Patch[*corev1.ConfigMap](ctx, c, "default", "one", types.MergePatchType, patch)
	must(t, 0, err)
	check("patched out of a view", "one2 two", "", "", "one2")
	must(t, 0, client.Delete[*corev1.ConfigMap](ctx, c, "default", "two", metav1.DeleteOptions{}))
	check("deleted", "one2", "", "", "one2")
	must(t, 0, client.Delete[*corev1.ConfigMap](ctx, c, "default", "one", metav1.DeleteOptions{}))
	if o, ok := views[0].Get("default", "one"); !ok || o.DeletionTimestamp == nil {
		t.Errorf("an object whose deletion waits for a finalizer: %v", o)
	}
	_, err = client.Patch[*corev1.ConfigMap](ctx, c, "default", "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	must(t, 0, err)
	check("finalized", "", "", "", "")
	for i := range 20 {
		name := fmt.Sprint("x", i)
		create(t, c, configMap(name))
		if _, ok := views[0].Get("default", name); !ok {
			t.Fatalf("%s was created and is not shown", name)
		}
	}
	must(t, 0, c.DeleteCollection(ctx, configMaps, "default", metav1.DeleteOptions{}, metav1.ListOptions{}))
	check("all deleted", "", "", "", "")
}

func viewLists(t *testing.T, c client.Interface) {
	create(t, c, configMap("b"))
	v := view(t, c, client.Scope{})
	create(t, c, configMap("a", "c=red"))
	elsewhere := configMap("a")
	elsewhere.Namespace = "other"
	create(t, c, elsewhere)
	expect(t, "all", names(v.List("", nil)), "default/a default/b other/a")
	expect(t, "a namespace", names(v.List("default", nil)), "default/a default/b")
	expect(t, "red", names(v.List("", labels.SelectorFromSet(labels.Set{"c": "red"}))), "default/a")
	if o, ok := v.Get("default", "a"); !ok || o.Labels["c"] != "red" {
		t.Errorf("got %v", o)
	}
	if _, ok := v.Get("other", "b"); ok {
		t.Error("an object of another namespace is there")
	}
}

func viewMetadata(t *testing.T, c client.Interface) {
	cm := configMap("one", "c=red")
	cm.Data = map[string]string{"a": "b"}
	made := create(t, c, cm)
	v, err := c.View(t.Context(), configMaps, client.Scope{MetadataOnly: true})
	obj, ok := must(t, v, err).Get("default", "one")
	m, isMeta := obj.(*metav1.PartialObjectMetadata)
	if !ok || !isMeta || m.Labels["c"] != "red" || m.UID != made.UID {
		t.Errorf("got %#v", obj)
	}
}

func viewFields(t *testing.T, c client.Interface) {
	create(t, c, pod("here", "n"))
	create(t, c, pod("there", "m"))
	create(t, c, pod("nowhere", ""))
	v, err := client.Open[*corev1.Pod](t.Context(), c, client.Scope{FieldSelector: "spec.nodeName=n"})
	expect(t, "at first", names(must(t, v, err).List("", nil)), "default/here")
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nowhere"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	_, err = c.CreateSub(short(t), pods, "default", "nowhere", "binding", binding, metav1.CreateOptions{})
	must(t, 0, err)
	// The view of a node may show a binding later: only the node opens one, and it does not bind.
	got := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got = names(v.List("", nil)); got == "default/here default/nowhere" {
			return
		}
	}
	t.Errorf("a minute after a binding the view shows %q", got)
}

func viewIndexes(t *testing.T, c client.Interface) {
	create(t, c, configMap("a", "c=red"))
	v := view(t, c, client.Scope{})
	v.AddIndex("color", func(o *corev1.ConfigMap) []string { return []string{o.Labels["c"]} })
	v.AddIndex("color", func(*corev1.ConfigMap) []string { return []string{"the first stays"} })
	b := create(t, c, configMap("b", "c=red"))
	expect(t, "red", names(v.ByIndex("color", "red")), "default/a default/b")
	b.Labels["c"] = "blue"
	_, err := client.Update(short(t), c, b)
	must(t, 0, err)
	expect(t, "red after a change", names(v.ByIndex("color", "red")), "default/a")
	expect(t, "no such value", names(v.ByIndex("color", "green")), "")
	defer func() {
		if recover() == nil {
			t.Error("an index that was never added has values")
		}
	}()
	v.ByIndex("none", "red")
}

func viewRevisions(t *testing.T, c client.Interface) {
	v := view(t, c, client.Scope{})
	for i := range 5 {
		revision := revisionOf(t, create(t, c, configMap(fmt.Sprint("a", i))))
		must(t, 0, v.WaitFor(short(t), revision))
		if v.Revision() < revision {
			t.Errorf("the view is at revision %d after a write at %d", v.Revision(), revision)
		}
	}
}

// events are a subscriber's, in words.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) add(ev client.TypedEvent[*corev1.ConfigMap]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := string(ev.Type) + " " + ev.Object.Name + ev.Object.Data["v"]
	if ev.Type == client.Modified {
		text += " from " + ev.Old.Name + ev.Old.Data["v"]
	}
	e.all = append(e.all, text)
}

func (e *events) wait(t *testing.T, want string) {
	t.Helper()
	got := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		e.mu.Lock()
		got = strings.Join(e.all, "; ")
		e.mu.Unlock()
		if got == want {
			return
		}
	}
	t.Fatalf("got  %s\nwant %s", got, want)
}

func subscribes(t *testing.T, c client.Interface) {
	create(t, c, configMap("a", "c=red"))
	create(t, c, configMap("hidden"))
	var got events
	v := view(t, c, client.Scope{LabelSelector: "c=red"})
	ctx, cancel := context.WithCancel(t.Context())
	synced, done := v.Subscribe(ctx, got.add)
	defer func() { cancel(); <-done }()
	<-synced
	got.wait(t, "Added a")
	b := create(t, c, configMap("b", "c=red"))
	b.Data = map[string]string{"v": "1"}
	b, err := client.Update(short(t), c, b)
	must(t, b, err)
	b.Labels["c"] = "blue"
	b, err = client.Update(short(t), c, b)
	must(t, b, err)
	b.Labels["c"] = "red"
	_, err = client.Update(short(t), c, b)
	must(t, 0, err)
	must(t, 0, client.Delete[*corev1.ConfigMap](short(t), c, "default", "a", metav1.DeleteOptions{}))
	got.wait(t, "Added a; Added b; Modified b1 from b; Deleted b1; Added b1; Deleted a")
}

func subscriptionEnds(t *testing.T, c client.Interface) {
	v := view(t, c, client.Scope{})
	ctx, cancel := context.WithCancel(t.Context())
	synced, done := v.Subscribe(ctx, func(client.TypedEvent[*corev1.ConfigMap]) {})
	<-synced
	cancel()
	select {
	case <-done:
	case <-short(t).Done():
		t.Fatal("the subscription did not end in a minute")
	}
	create(t, c, configMap("late"))
	if _, ok := v.Get("default", "late"); !ok {
		t.Error("the view itself ended")
	}
}

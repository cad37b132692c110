package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

// Run is the conformance suite for client.Interface. open makes a client of a cluster without
// ConfigMaps in the namespaces "default" and "other", and without pods. Writes into these
// namespaces succeed.
func Run(t *testing.T, open func(t *testing.T) client.Interface) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T, c client.Interface)
	}{
		{"a created object can be read", created},
		{"an existing name cannot be created again", createdTwice},
		{"a missing object is not found", missing},
		{"errors are StatusErrors", statusErrors},
		{"a list has the objects that match, in key order", lists},
		{"an invalid selector is a bad request", invalidSelectors},
		{"an update replaces the current version only", updates},
		{"an update without effect keeps the resourceVersion", emptyUpdates},
		{"the status changes only through its subresource", statuses},
		{"patches of each type are applied", patches},
		{"a patch of a stale version conflicts", stalePatches},
		{"a deleted object is gone", deletes},
		{"a deletion of another UID conflicts", deletePreconditions},
		{"an object with finalizers stays until they are removed", finalizers},
		{"a pod on a node is deleted gracefully", gracefulDeletes},
		{"a collection is deleted by selector", deleteCollections},
		{"a binding assigns a pod once", bindings},
		{"the answer and the argument are copies", copies},
		{"discovery lists group versions with their resources", discovers},
		{"each view shows a write when it returns", ownWrites},
		{"a view lists in key order and finds by name", viewLists},
		{"a view of metadata has metadata only", viewMetadata},
		{"a view of pods follows their node", viewFields},
		{"an index follows the changes, and its first function stays", viewIndexes},
		{"a view reaches the revision of each write", viewRevisions},
		{"a subscriber gets what is there and each change, in order", subscribes},
		{"a subscription ends with its context", subscriptionEnds},
		{"a lazy view finds what it does not show yet", lazyViews},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, open(t)) })
	}
}

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	pods       = corev1.SchemeGroupVersion.WithResource("pods")
)

// configMap makes a ConfigMap in "default"; the labels are "key=value".
func configMap(name string, labels ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, label := range labels {
		if cm.Labels == nil {
			cm.Labels = map[string]string{}
		}
		key, value, _ := strings.Cut(label, "=")
		cm.Labels[key] = value
	}
	return cm
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
	}
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// must returns the value if there is no error.
func must[T any](t *testing.T, value T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func create[T client.Object](t *testing.T, c client.Interface, obj T) T {
	t.Helper()
	made, err := client.Create(short(t), c, obj)
	return must(t, made, err)
}

func read(t *testing.T, c client.Interface, name string) *corev1.ConfigMap {
	t.Helper()
	cm, err := client.Get[*corev1.ConfigMap](short(t), c, "default", name)
	return must(t, cm, err)
}

// errorIs checks the class of an error.
func errorIs(t *testing.T, what string, err error, is func(error) bool) {
	t.Helper()
	if !is(err) {
		t.Errorf("%s: %v", what, err)
	}
}

// names lists "namespace/name" in the order given.
func names[T metav1.Object](objects []T) string {
	var out []string
	for _, o := range objects {
		out = append(out, o.GetNamespace()+"/"+o.GetName())
	}
	return strings.Join(out, " ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func created(t *testing.T, c client.Interface) {
	made := create(t, c, configMap("one", "a=b"))
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || made.Namespace != "default" {
		t.Errorf("the metadata lacks fields: %+v", made.ObjectMeta)
	}
	got := read(t, c, "one")
	if got.UID != made.UID || got.ResourceVersion != made.ResourceVersion || got.Labels["a"] != "b" {
		t.Errorf("read %+v, created %+v", got.ObjectMeta, made.ObjectMeta)
	}
	generated := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-", Namespace: "default"}}
	if named := create(t, c, generated); !strings.HasPrefix(named.Name, "made-") || named.Name == "made-" {
		t.Errorf("the generated name is %q", named.Name)
	}
	obj, err := c.Create(short(t), configMaps, "other", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	if placed := must(t, obj, err).(*corev1.ConfigMap); placed.Namespace != "other" {
		t.Errorf("the request's namespace became %q", placed.Namespace)
	}
}

func createdTwice(t *testing.T, c client.Interface) {
	create(t, c, configMap("one"))
	_, err := client.Create(short(t), c, configMap("one"))
	errorIs(t, "created again", err, apierrors.IsAlreadyExists)
}

func missing(t *testing.T, c client.Interface) {
	ctx := short(t)
	_, err := client.Get[*corev1.ConfigMap](ctx, c, "default", "none")
	errorIs(t, "get", err, apierrors.IsNotFound)
	_, err = client.Update(ctx, c, configMap("none"))
	errorIs(t, "update", err, apierrors.IsNotFound)
	_, err = client.Patch[*corev1.ConfigMap](ctx, c, "default", "none", types.MergePatchType, []byte(`{}`))
	errorIs(t, "patch", err, apierrors.IsNotFound)
	errorIs(t, "delete", client.Delete[*corev1.ConfigMap](ctx, c, "default", "none", metav1.DeleteOptions{}), apierrors.IsNotFound)
	create(t, c, configMap("one"))
	_, err = client.Get[*corev1.ConfigMap](ctx, c, "other", "one")
	errorIs(t, "get from another namespace", err, apierrors.IsNotFound)
}

func statusErrors(t *testing.T, c client.Interface) {
	_, err := client.Get[*corev1.ConfigMap](short(t), c, "default", "none")
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("a %T: %v", err, err)
	}
	s := status.Status()
	if s.Code != 404 || s.Details == nil || s.Details.Name != "none" || s.Details.Kind != "configmaps" {
		t.Errorf("the status is %+v", s)
	}
	expect(t, "the message", s.Message, `configmaps "none" not found`)
}

func lists(t *testing.T, c client.Interface) {
	for _, cm := range []*corev1.ConfigMap{configMap("b", "c=red"), configMap("a"), configMap("c", "c=red")} {
		create(t, c, cm)
	}
	elsewhere := configMap("z", "c=red")
	elsewhere.Namespace = "other"
	create(t, c, elsewhere)
	for _, tc := range []struct {
		what, namespace string
		opts            metav1.ListOptions
		want            string
	}{
		{"a namespace", "default", metav1.ListOptions{}, "default/a default/b default/c"},
		{"all red", "", metav1.ListOptions{LabelSelector: "c=red"}, "default/b default/c other/z"},
		{"red in a namespace", "default", metav1.ListOptions{LabelSelector: "c=red"}, "default/b default/c"},
		{"one name", "", metav1.ListOptions{FieldSelector: "metadata.name=z"}, "other/z"},
		{"nothing", "none", metav1.ListOptions{}, ""},
	} {
		obj, err := c.List(short(t), configMaps, tc.namespace, tc.opts)
		list, ok := must(t, obj, err).(*corev1.ConfigMapList)
		if !ok {
			t.Fatalf("the list is a %T", obj)
		}
		var items []*corev1.ConfigMap
		for i := range list.Items {
			items = append(items, &list.Items[i])
		}
		expect(t, tc.what, names(items), tc.want)
		if list.ResourceVersion == "" {
			t.Errorf("%s: the list has no resourceVersion", tc.what)
		}
	}
}

func invalidSelectors(t *testing.T, c client.Interface) {
	_, err := c.List(short(t), configMaps, "default", metav1.ListOptions{LabelSelector: "a=("})
	errorIs(t, "a list", err, apierrors.IsBadRequest)
}

func updates(t *testing.T, c client.Interface) {
	stale := create(t, c, configMap("one"))
	changed := stale.DeepCopy()
	changed.Data = map[string]string{"v": "1"}
	changed, err := client.Update(short(t), c, changed)
	if must(t, changed, err); changed.Data["v"] != "1" || changed.ResourceVersion == stale.ResourceVersion || changed.UID != stale.UID {
		t.Errorf("updated to %+v", changed)
	}
	stale.Data = map[string]string{"v": "2"}
	_, err = client.Update(short(t), c, stale)
	errorIs(t, "an update of a stale version", err, apierrors.IsConflict)
	stale.ResourceVersion = ""
	forced, err := client.Update(short(t), c, stale)
	expect(t, "an update without resourceVersion", must(t, forced, err).Data["v"], "2")
	expect(t, "read", read(t, c, "one").Data["v"], "2")
}

func emptyUpdates(t *testing.T, c client.Interface) {
	made := create(t, c, configMap("one"))
	same, err := client.Update(short(t), c, made.DeepCopy())
	expect(t, "the resourceVersion", must(t, same, err).ResourceVersion, made.ResourceVersion)
}

func statuses(t *testing.T, c client.Interface) {
	made := create(t, c, pod("p", ""))
	expect(t, "the phase of a new pod", string(made.Status.Phase), "Pending")
	both := made.DeepCopy()
	both.Labels, both.Status.Message = map[string]string{"a": "b"}, "new"
	updated, err := client.Update(short(t), c, both)
	expect(t, "the label after an update", must(t, updated, err).Labels["a"], "b")
	expect(t, "the status after an update", updated.Status.Message, "")
	both = updated.DeepCopy()
	both.Labels["a"], both.Status.Message = "c", "new"
	updated, err = client.UpdateStatus(short(t), c, both)
	expect(t, "the status after an update of the status", must(t, updated, err).Status.Message, "new")
	if updated.Spec.Containers[0].Image != "i" {
		t.Errorf("an update of the status changed the spec: %+v", updated.Spec)
	}
	patch := []byte(`{"status":{"message":"newer"}}`)
	_, err = client.Patch[*corev1.Pod](short(t), c, "default", "p", types.MergePatchType, patch)
	must(t, 0, err)
	patched, err := client.Patch[*corev1.Pod](short(t), c, "default", "p", types.StrategicMergePatchType, []byte(`{"status":{"reason":"R"}}`), "status")
	expect(t, "the status after patches", must(t, patched, err).Status.Message+" "+patched.Status.Reason, "new R")
}

func patches(t *testing.T, c client.Interface) {
	create(t, c, pod("p", ""))
	for _, tc := range []struct {
		pt   types.PatchType
		data string
		want string
	}{
		{types.MergePatchType, `{"metadata":{"labels":{"a":"merge"}}}`, "merge i"},
		{types.JSONPatchType, `[{"op":"replace","path":"/metadata/labels/a","value":"json"}]`, "json i"},
		{types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"main","image":"j"}]}}`, "json j"},
	} {
		p, err := client.Patch[*corev1.Pod](short(t), c, "default", "p", tc.pt, []byte(tc.data))
		expect(t, string(tc.pt), must(t, p, err).Labels["a"]+" "+p.Spec.Containers[0].Image, tc.want)
	}
	_, err := client.Patch[*corev1.Pod](short(t), c, "default", "p", types.MergePatchType, []byte(`{`))
	errorIs(t, "a patch that is no JSON", err, apierrors.IsBadRequest)
}

func stalePatches(t *testing.T, c client.Interface) {
	create(t, c, configMap("one"))
	patch := []byte(`{"metadata":{"resourceVersion":"999999"},"data":{"a":"b"}}`)
	_, err := client.Patch[*corev1.ConfigMap](short(t), c, "default", "one", types.MergePatchType, patch)
	errorIs(t, "a patch with another resourceVersion", err, apierrors.IsConflict)
}

func deletes(t *testing.T, c client.Interface) {
	first := create(t, c, configMap("one"))
	must(t, 0, client.Delete[*corev1.ConfigMap](short(t), c, "default", "one", metav1.DeleteOptions{}))
	errorIs(t, "deleted again", client.Delete[*corev1.ConfigMap](short(t), c, "default", "one", metav1.DeleteOptions{}), apierrors.IsNotFound)
	if second := create(t, c, configMap("one")); second.UID == first.UID {
		t.Errorf("an object of the same name has the old UID %s", first.UID)
	}
}

func deletePreconditions(t *testing.T, c client.Interface) {
	made := create(t, c, configMap("one"))
	other := types.UID("other")
	err := client.Delete[*corev1.ConfigMap](short(t), c, "default", "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	errorIs(t, "another UID", err, apierrors.IsConflict)
	must(t, 0, client.Delete[*corev1.ConfigMap](short(t), c, "default", "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}))
}

func finalizers(t *testing.T, c client.Interface) {
	held := configMap("one")
	held.Finalizers = []string{"example.com/hold"}
	create(t, c, held)
	must(t, 0, client.Delete[*corev1.ConfigMap](short(t), c, "default", "one", metav1.DeleteOptions{}))
	ending := read(t, c, "one")
	if ending.DeletionTimestamp == nil {
		t.Fatal("a deleted object with a finalizer has no deletionTimestamp")
	}
	ending.Finalizers = nil
	_, err := client.Update(short(t), c, ending)
	must(t, 0, err)
	_, err = client.Get[*corev1.ConfigMap](short(t), c, "default", "one")
	errorIs(t, "without its finalizer", err, apierrors.IsNotFound)
}

func gracefulDeletes(t *testing.T, c client.Interface) {
	create(t, c, pod("bound", "n"))
	create(t, c, pod("unbound", ""))
	must(t, 0, client.Delete[*corev1.Pod](short(t), c, "default", "bound", metav1.DeleteOptions{}))
	p, err := client.Get[*corev1.Pod](short(t), c, "default", "bound")
	if must(t, p, err); p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Errorf("a deleted pod on a node: %+v", p.ObjectMeta)
	}
	zero := int64(0)
	must(t, 0, client.Delete[*corev1.Pod](short(t), c, "default", "bound", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	must(t, 0, client.Delete[*corev1.Pod](short(t), c, "default", "unbound", metav1.DeleteOptions{}))
	for _, name := range []string{"bound", "unbound"} {
		_, err := client.Get[*corev1.Pod](short(t), c, "default", name)
		errorIs(t, name, err, apierrors.IsNotFound)
	}
}

func deleteCollections(t *testing.T, c client.Interface) {
	for _, cm := range []*corev1.ConfigMap{configMap("a", "c=red"), configMap("b"), configMap("c", "c=red")} {
		create(t, c, cm)
	}
	elsewhere := configMap("a", "c=red")
	elsewhere.Namespace = "other"
	create(t, c, elsewhere)
	v := view(t, c, client.Scope{})
	must(t, 0, c.DeleteCollection(short(t), configMaps, "default", metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "c=red"}))
	expect(t, "left", names(v.List("", nil)), "default/b other/a")
}

func bindings(t *testing.T, c client.Interface) {
	p := create(t, c, pod("p", ""))
	view, err := client.Open[*corev1.Pod](t.Context(), c, client.Scope{})
	must(t, view, err)
	bind := func(node string) error {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}
		_, err := c.CreateSub(short(t), pods, p.Namespace, p.Name, "binding", binding, metav1.CreateOptions{})
		return err
	}
	must(t, 0, bind("n"))
	if shown, ok := view.Get("default", "p"); !ok || shown.Spec.NodeName != "n" {
		t.Errorf("after the binding a view shows %+v", shown)
	}
	bound, err := client.Get[*corev1.Pod](short(t), c, "default", "p")
	expect(t, "the node", must(t, bound, err).Spec.NodeName, "n")
	errorIs(t, "bound again", bind("m"), apierrors.IsConflict)
}

func copies(t *testing.T, c client.Interface) {
	given := configMap("one", "a=b")
	answered := create(t, c, given)
	given.Labels["a"], answered.Labels["a"] = "c", "d"
	expect(t, "the label", read(t, c, "one").Labels["a"], "b")
	got := read(t, c, "one")
	got.Labels["a"] = "e"
	expect(t, "the label", read(t, c, "one").Labels["a"], "b")
}

func discovers(t *testing.T, c client.Interface) {
	all, err := c.Discovery(short(t))
	kinds := map[string]string{}
	for _, list := range must(t, all, err) {
		for _, r := range list.APIResources {
			kinds[list.GroupVersion+" "+r.Name] = fmt.Sprint(r.Kind, " ", r.Namespaced)
		}
	}
	expect(t, "configmaps", kinds["v1 configmaps"], "ConfigMap true")
	expect(t, "nodes", kinds["v1 nodes"], "Node false")
	expect(t, "deployments", kinds["apps/v1 deployments"], "Deployment true")
}

func lazyViews(t *testing.T, c client.Interface) {
	indexed := 0
	lazy := client.NewLazy(t.Context(), c, func(client.ViewOf[*corev1.ConfigMap]) { indexed++ })
	_, err := lazy.Find(short(t), "default", "one")
	errorIs(t, "a missing object", err, apierrors.IsNotFound)
	create(t, c, configMap("one"))
	cm, err := lazy.Find(short(t), "default", "one")
	expect(t, "found", must(t, cm, err).Name, "one")
	if indexed != 1 {
		t.Errorf("the view was opened %d times", indexed)
	}
}

func revisionOf(t *testing.T, o metav1.Object) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	return must(t, n, err)
}

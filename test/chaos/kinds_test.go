package chaos

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// item is an object of any kind in the form of the model.
type item struct {
	name, uid, version string
	value, status      string
	chosen, deleting   bool
	held               holds
}

// holds is the set of finalizers that delay a deletion.
type holds uint8

var finalizers = []string{"chaos.example.com/a", "chaos.example.com/b"}

func holdsOf(names []string) (h holds) {
	for i, name := range finalizers {
		if slices.Contains(names, name) {
			h |= 1 << i
		}
	}
	return h
}

func (h holds) names() []string {
	names := []string{}
	for i, name := range finalizers {
		if h&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// metadata returns the fields that all kinds have.
func metadata(obj metav1.Object) item {
	return item{name: obj.GetName(), uid: string(obj.GetUID()), version: obj.GetResourceVersion(), chosen: obj.GetLabels()["chosen"] != "",
		deleting: obj.GetDeletionTimestamp() != nil, held: holdsOf(obj.GetFinalizers())}
}

// setMetadata sets the fields that a write sends. Half of the objects carry the label of the
// selecting watcher.
func (i item) setMetadata(obj metav1.Object) {
	obj.SetName(i.name)
	obj.SetUID(types.UID(i.uid))
	obj.SetResourceVersion(i.version)
	obj.SetFinalizers(i.held.names())
	if i.chosen {
		obj.SetLabels(map[string]string{"chosen": "yes"})
	}
}

// api is one client's access to the objects of one kind in one namespace.
type api interface {
	get(ctx context.Context, name string, opts metav1.GetOptions) (item, error)
	create(ctx context.Context, i item, opts metav1.CreateOptions) (item, error)
	update(ctx context.Context, i item, opts metav1.UpdateOptions) (item, error)
	patch(ctx context.Context, name string, how types.PatchType, body string, opts metav1.PatchOptions, subresources ...string) (item, error)
	remove(ctx context.Context, name string, opts metav1.DeleteOptions) error
	sweep(ctx context.Context, opts metav1.ListOptions) error
	list(ctx context.Context, opts metav1.ListOptions) ([]item, metav1.ListMeta, error)
	watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	// read converts an event's object to an item.
	read(obj runtime.Object) (item, error)
	// section is the field with the value; header is the beginning of an applied object.
	section() string
	header() string
}

// kind is one of the tested kinds.
type kind struct {
	name  string
	group string // path of the group and version
	// unconditional kinds allow updates without a resourceVersion.
	unconditional bool
	// reports marks a kind with a status subresource.
	reports bool
	open    func(cfg *rest.Config, namespace string, choice int) (api, error)
}

var kinds = []kind{
	{name: "configmaps", group: "/api/v1", unconditional: true, open: openConfigMaps},
	{name: widgets.Resource, group: "/apis/chaos.example.com/v1", reports: true, open: openWidgets},
}

// clusterKinds are the kinds for a cluster with controllers, which write ConfigMaps of their own.
var clusterKinds = []kind{
	{name: "secrets", group: "/api/v1", unconditional: true, open: openSecrets},
	kinds[1],
}

// path returns the path of the kind's objects in a namespace.
func (k *kind) path(namespace string) string {
	return fmt.Sprintf("%s/namespaces/%s/%s", k.group, namespace, k.name)
}

// objects are the methods of typed and dynamic clients.
type objects[T, L any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Patch(ctx context.Context, name string, how types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, opts metav1.DeleteOptions, listOpts metav1.ListOptions) error
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// client implements api by a kind's client: itemOf reads an object of the kind, object makes one.
type client[T metav1.Object, L runtime.Object] struct {
	objects[T, L]
	field, begin string
	itemOf       func(T) (item, error)
	object       func(item) T
}

func (c client[T, L]) section() string { return c.field }
func (c client[T, L]) header() string  { return c.begin }

func (c client[T, L]) read(obj runtime.Object) (item, error) {
	t, ok := obj.(T)
	if !ok {
		return item{}, fmt.Errorf("a %T instead of a %T", obj, t)
	}
	return c.itemOf(t)
}

func (c client[T, L]) answer(t T, err error) (item, error) {
	if err != nil {
		return item{}, err
	}
	return c.itemOf(t)
}

func (c client[T, L]) get(ctx context.Context, name string, opts metav1.GetOptions) (item, error) {
	return c.answer(c.Get(ctx, name, opts))
}

func (c client[T, L]) create(ctx context.Context, i item, opts metav1.CreateOptions) (item, error) {
	return c.answer(c.Create(ctx, c.object(i), opts))
}

func (c client[T, L]) update(ctx context.Context, i item, opts metav1.UpdateOptions) (item, error) {
	return c.answer(c.Update(ctx, c.object(i), opts))
}

func (c client[T, L]) patch(ctx context.Context, name string, how types.PatchType, body string, opts metav1.PatchOptions, subresources ...string) (item, error) {
	return c.answer(c.Patch(ctx, name, how, []byte(body), opts, subresources...))
}

func (c client[T, L]) sweep(ctx context.Context, opts metav1.ListOptions) error {
	return c.DeleteCollection(ctx, metav1.DeleteOptions{}, opts)
}

func (c client[T, L]) remove(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return c.Delete(ctx, name, opts)
}

func (c client[T, L]) list(ctx context.Context, opts metav1.ListOptions) (items []item, _ metav1.ListMeta, err error) {
	list, err := c.List(ctx, opts)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		one, err := c.read(obj)
		items = append(items, one)
		return err
	})
	return items, metav1.ListMeta{ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue()}, err
}

func (c client[T, L]) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.Watch(ctx, opts)
}

// openConfigMaps opens a built-in kind, stored and sent as protobuf.
func openConfigMaps(cfg *rest.Config, namespace string, _ int) (api, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return client[*corev1.ConfigMap, *corev1.ConfigMapList]{
		objects: c.CoreV1().ConfigMaps(namespace),
		field:   "data",
		begin:   `"apiVersion":"v1","kind":"ConfigMap"`,
		itemOf: func(m *corev1.ConfigMap) (item, error) {
			i := metadata(m)
			i.value = m.Data[valueKey]
			return i, nil
		},
		object: func(i item) *corev1.ConfigMap {
			m := &corev1.ConfigMap{Data: map[string]string{valueKey: i.value}}
			i.setMetadata(m)
			return m
		},
	}, nil
}

// openSecrets opens a built-in kind whose values are sent in base64. The values of a history are
// valid base64 as they are.
func openSecrets(cfg *rest.Config, namespace string, _ int) (api, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return client[*corev1.Secret, *corev1.SecretList]{
		objects: c.CoreV1().Secrets(namespace),
		field:   "data",
		begin:   `"apiVersion":"v1","kind":"Secret"`,
		itemOf: func(m *corev1.Secret) (item, error) {
			i := metadata(m)
			i.value = base64.StdEncoding.EncodeToString(m.Data[valueKey])
			return i, nil
		},
		object: func(i item) *corev1.Secret {
			value, err := base64.StdEncoding.DecodeString(i.value)
			if err != nil {
				panic(err)
			}
			m := &corev1.Secret{Data: map[string][]byte{valueKey: value}}
			i.setMetadata(m)
			return m
		},
	}, nil
}

// widgets is a custom kind with two versions, one of which is stored.
var widgets = schema.GroupResource{Group: "chaos.example.com", Resource: "widgets"}

const widgetDefinition = `{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.chaos.example.com"},
	"spec": {
		"group": "chaos.example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
		"versions": [
			{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
				"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"value": {"type": "string"}}}, "status": {"type": "object", "properties": {"value": {"type": "string"}}}}}}},
			{"name": "v1beta1", "served": true, "storage": false, "subresources": {"status": {}},
				"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"value": {"type": "string"}}}, "status": {"type": "object", "properties": {"value": {"type": "string"}}}}}}}
		]
	}
}`

// openWidgets opens the widgets in one of their versions.
func openWidgets(cfg *rest.Config, namespace string, choice int) (api, error) {
	version := []string{"v1", "v1beta1"}[choice%2]
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	group := widgets.Group + "/" + version
	return client[*unstructured.Unstructured, *unstructured.UnstructuredList]{
		objects: whole{c.Resource(widgets.WithVersion(version)).Namespace(namespace)},
		field:   "spec",
		begin:   fmt.Sprintf(`"apiVersion":%q,"kind":"Widget"`, group),
		itemOf: func(u *unstructured.Unstructured) (item, error) {
			if u.GetKind() != "Widget" || u.GetAPIVersion() != group {
				return item{}, fmt.Errorf("a %s instead of a Widget of %s", u.GroupVersionKind(), version)
			}
			i := metadata(u)
			i.value, _, _ = unstructured.NestedString(u.Object, "spec", valueKey)
			i.status, _, _ = unstructured.NestedString(u.Object, "status", valueKey)
			return i, nil
		},
		object: func(i item) *unstructured.Unstructured {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": "Widget", "spec": map[string]any{valueKey: i.value},
				"status": map[string]any{valueKey: "no write of the object may change it"}}}
			i.setMetadata(u)
			return u
		},
	}, nil
}

// whole is a dynamic client with the methods of typed clients, for whole objects.
type whole struct{ dynamic.ResourceInterface }

func (w whole) Get(ctx context.Context, name string, opts metav1.GetOptions) (*unstructured.Unstructured, error) {
	return w.ResourceInterface.Get(ctx, name, opts)
}

func (w whole) Create(ctx context.Context, obj *unstructured.Unstructured, opts metav1.CreateOptions) (*unstructured.Unstructured, error) {
	return w.ResourceInterface.Create(ctx, obj, opts)
}

func (w whole) Update(ctx context.Context, obj *unstructured.Unstructured, opts metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	return w.ResourceInterface.Update(ctx, obj, opts)
}

func (w whole) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return w.ResourceInterface.Delete(ctx, name, opts)
}

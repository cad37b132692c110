package chaos

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// item is an object as the model looks at it, of whatever kind.
type item struct {
	name, uid, version string
	value              string
	chosen, deleting   bool
	held               holds
}

// holds are the finalizers that hold a deletion up.
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

// metadata is what is common to all kinds.
func metadata(obj metav1.Object) item {
	return item{name: obj.GetName(), uid: string(obj.GetUID()), version: obj.GetResourceVersion(), chosen: obj.GetLabels()["chosen"] != "",
		deleting: obj.GetDeletionTimestamp() != nil, held: holdsOf(obj.GetFinalizers())}
}

// setMetadata is what a write sends. Half of the objects carry the label that the selecting watcher looks for.
func (i item) setMetadata(obj metav1.Object) {
	obj.SetName(i.name)
	obj.SetUID(types.UID(i.uid))
	obj.SetResourceVersion(i.version)
	obj.SetFinalizers(i.held.names())
	if i.chosen {
		obj.SetLabels(map[string]string{"chosen": "yes"})
	}
}

// api is one client's way to the objects of one kind in one namespace.
type api interface {
	get(ctx context.Context, name string, opts metav1.GetOptions) (item, error)
	create(ctx context.Context, i item) (item, error)
	update(ctx context.Context, i item) (item, error)
	patch(ctx context.Context, name string, how types.PatchType, body string, opts metav1.PatchOptions) (item, error)
	remove(ctx context.Context, name string, opts metav1.DeleteOptions) error
	list(ctx context.Context, opts metav1.ListOptions) ([]item, metav1.ListMeta, error)
	watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	// read makes an item of an event's object.
	read(obj runtime.Object) (item, error)
	// section is the field that the value is in; header is what an applied object begins with.
	section() string
	header() string
}

// kind is one of the kinds that histories are made of.
type kind struct {
	name string
	// unconditional: an update need not say which version it is of.
	unconditional bool
	open          func(cfg *rest.Config, namespace string, choice int) (api, error)
}

var kinds = []kind{
	{name: "configmaps", unconditional: true, open: openConfigMaps},
	{name: widgets.Resource, open: openWidgets},
}

// configMaps are a built-in kind, stored and sent as protobuf.
type configMaps struct {
	corev1client.ConfigMapInterface
}

func openConfigMaps(cfg *rest.Config, namespace string, _ int) (api, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return configMaps{c.CoreV1().ConfigMaps(namespace)}, nil
}

func (configMaps) section() string { return "data" }
func (configMaps) header() string  { return `"apiVersion":"v1","kind":"ConfigMap"` }

func (configMaps) read(obj runtime.Object) (item, error) {
	m, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return item{}, fmt.Errorf("a %T instead of a ConfigMap", obj)
	}
	i := metadata(m)
	i.value = m.Data[valueKey]
	return i, nil
}

func (c configMaps) answer(m *corev1.ConfigMap, err error) (item, error) {
	if err != nil {
		return item{}, err
	}
	return c.read(m)
}

func (configMaps) object(i item) *corev1.ConfigMap {
	m := &corev1.ConfigMap{Data: map[string]string{valueKey: i.value}}
	i.setMetadata(m)
	return m
}

func (c configMaps) get(ctx context.Context, name string, opts metav1.GetOptions) (item, error) {
	return c.answer(c.Get(ctx, name, opts))
}

func (c configMaps) create(ctx context.Context, i item) (item, error) {
	return c.answer(c.Create(ctx, c.object(i), metav1.CreateOptions{}))
}

func (c configMaps) update(ctx context.Context, i item) (item, error) {
	return c.answer(c.Update(ctx, c.object(i), metav1.UpdateOptions{}))
}

func (c configMaps) patch(ctx context.Context, name string, how types.PatchType, body string, opts metav1.PatchOptions) (item, error) {
	return c.answer(c.Patch(ctx, name, how, []byte(body), opts))
}

func (c configMaps) remove(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return c.Delete(ctx, name, opts)
}

func (c configMaps) list(ctx context.Context, opts metav1.ListOptions) (items []item, meta metav1.ListMeta, err error) {
	list, err := c.List(ctx, opts)
	if err != nil {
		return nil, meta, err
	}
	for i := range list.Items {
		one, err := c.read(&list.Items[i])
		if err != nil {
			return nil, meta, err
		}
		items = append(items, one)
	}
	return items, list.ListMeta, nil
}

func (c configMaps) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.Watch(ctx, opts)
}

// widgets are a custom kind of two versions, one of which is stored.
var widgets = schema.GroupResource{Group: "chaos.example.com", Resource: "widgets"}

const widgetDefinition = `{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.chaos.example.com"},
	"spec": {
		"group": "chaos.example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
		"versions": [
			{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"value": {"type": "string"}}}}}}},
			{"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"value": {"type": "string"}}}}}}}
		]
	}
}`

// widgetClient is one client's way to widgets, in one of their versions.
type widgetClient struct {
	dynamic.ResourceInterface
	version string
}

func openWidgets(cfg *rest.Config, namespace string, choice int) (api, error) {
	version := []string{"v1", "v1beta1"}[choice%2]
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return widgetClient{c.Resource(widgets.WithVersion(version)).Namespace(namespace), version}, nil
}

func (widgetClient) section() string { return "spec" }
func (c widgetClient) header() string {
	return fmt.Sprintf(`"apiVersion":"%s/%s","kind":"Widget"`, widgets.Group, c.version)
}

func (c widgetClient) read(obj runtime.Object) (item, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.GetKind() != "Widget" || u.GetAPIVersion() != widgets.Group+"/"+c.version {
		return item{}, fmt.Errorf("a %T of %s instead of a Widget of %s", obj, obj.GetObjectKind().GroupVersionKind(), c.version)
	}
	i := metadata(u)
	i.value, _, _ = unstructured.NestedString(u.Object, "spec", valueKey)
	return i, nil
}

func (c widgetClient) answer(u *unstructured.Unstructured, err error) (item, error) {
	if err != nil {
		return item{}, err
	}
	return c.read(u)
}

func (c widgetClient) object(i item) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": widgets.Group + "/" + c.version, "kind": "Widget",
		"spec": map[string]any{valueKey: i.value}}}
	i.setMetadata(u)
	return u
}

func (c widgetClient) get(ctx context.Context, name string, opts metav1.GetOptions) (item, error) {
	return c.answer(c.Get(ctx, name, opts))
}

func (c widgetClient) create(ctx context.Context, i item) (item, error) {
	return c.answer(c.Create(ctx, c.object(i), metav1.CreateOptions{}))
}

func (c widgetClient) update(ctx context.Context, i item) (item, error) {
	return c.answer(c.Update(ctx, c.object(i), metav1.UpdateOptions{}))
}

func (c widgetClient) patch(ctx context.Context, name string, how types.PatchType, body string, opts metav1.PatchOptions) (item, error) {
	return c.answer(c.Patch(ctx, name, how, []byte(body), opts))
}

func (c widgetClient) remove(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return c.Delete(ctx, name, opts)
}

func (c widgetClient) list(ctx context.Context, opts metav1.ListOptions) (items []item, meta metav1.ListMeta, err error) {
	list, err := c.List(ctx, opts)
	if err != nil {
		return nil, meta, err
	}
	for i := range list.Items {
		one, err := c.read(&list.Items[i])
		if err != nil {
			return nil, meta, err
		}
		items = append(items, one)
	}
	return items, metav1.ListMeta{ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue()}, nil
}

func (c widgetClient) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.Watch(ctx, opts)
}

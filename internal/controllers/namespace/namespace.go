// Package namespace empties namespaces that are being deleted. It deletes the pods first
// (KEP-5080), then the objects of every other kind in discovery, custom resources included. Then it
// removes its finalizer, and the API server deletes the namespace.
//
// In: namespaces, pods, discovery. Out: deletions of everything in the namespace, the namespace's
// conditions and finalizers.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Namespace is the controller.
var Namespace = controller.Starter{Name: "namespace-controller", Run: run}

// A namespace that empties slowly is checked again after a fraction of the time it has waited,
// between these bounds.
const (
	minWait = 100 * time.Millisecond
	maxWait = 10 * time.Second
)

var (
	pods       = corev1.SchemeGroupVersion.WithResource("pods")
	namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
)

type namespaced struct {
	client client.Interface
	view   client.ViewOf[*corev1.Namespace]
	now    func() time.Time
}

func run(ctx context.Context, env controller.Env) error {
	view, err := client.Open[*corev1.Namespace](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open namespaces: %w", err)
	}
	podView, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	c := &namespaced{client: env.Client, view: view, now: env.Now}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "namespace-controller",
		Inputs: []controller.Input{
			controller.On(view, func(e client.TypedEvent[*corev1.Namespace]) []controller.Key {
				if e.Type == client.Deleted || e.Object.DeletionTimestamp == nil {
					return nil
				}
				return []controller.Key{controller.KeyOf(e.Object)}
			}),
			// A namespace mostly waits for its pods, so check it at once when one is gone.
			controller.On(podView, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
				if e.Type != client.Deleted {
					return nil
				}
				if ns, ok := view.Get("", e.Object.Namespace); !ok || ns.DeletionTimestamp == nil {
					return nil
				}
				return []controller.Key{{Name: e.Object.Namespace}}
			}),
		},
		Workers:   4,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func (c *namespaced) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	ns, ok := c.view.Get("", key.Name)
	if !ok || ns.DeletionTimestamp == nil {
		return controller.Result{}, nil
	}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return controller.Result{}, nil
	}
	found := c.empty(ctx, ns)
	updated, err := c.report(ctx, ns, found)
	if err != nil {
		return controller.Result{}, ignoreNotFound(err)
	}
	if err := found.err(); err != nil {
		return controller.Result{}, fmt.Errorf("delete the content of namespace %s: %w", ns.Name, err)
	}
	if len(found.remaining) > 0 {
		waited := c.now().Sub(ns.DeletionTimestamp.Time)
		return controller.Result{After: min(max(waited/4, minWait), maxWait)}, nil
	}
	return controller.Result{}, ignoreNotFound(c.finalize(ctx, updated))
}

// finalize removes our finalizer. If it was the last one, the API server deletes the namespace.
func (c *namespaced) finalize(ctx context.Context, ns *corev1.Namespace) error {
	ns = ns.DeepCopy()
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err := c.client.Update(ctx, namespaces, ns, metav1.UpdateOptions{}, "finalize")
	return err
}

// content is the result of one pass over a namespace.
type content struct {
	discovery  error
	parsing    []error
	deletion   []error
	remaining  map[schema.GroupVersionResource]int
	finalizers map[string]int
}

func (f *content) err() error {
	return errors.Join(append(append([]error{f.discovery}, f.parsing...), f.deletion...)...)
}

// empty deletes the content of the namespace and returns what is left. Other kinds wait until the
// pods are gone: a pod must not lose its network policies or Secrets while it runs.
func (c *namespaced) empty(ctx context.Context, ns *corev1.Namespace) *content {
	found := &content{remaining: map[schema.GroupVersionResource]int{}, finalizers: map[string]int{}}
	resources := c.discover(ctx, found)
	for i, r := range resources {
		if r.gvr == pods {
			c.delete(ctx, ns.Name, r, found)
			resources = slices.Delete(resources, i, i+1)
			break
		}
	}
	if n := found.remaining[pods]; n > 0 || len(found.deletion) > 0 {
		return found
	}
	for _, r := range resources {
		c.delete(ctx, ns.Name, r, found)
	}
	return found
}

// kind is a resource to be deleted.
type kind struct {
	gvr        schema.GroupVersionResource
	collection bool // supports deletecollection
}

// discover lists the resources to delete, each once, in the first version that serves it.
func (c *namespaced) discover(ctx context.Context, found *content) []kind {
	lists, err := c.client.Discovery(ctx)
	if err != nil {
		found.discovery = err
	}
	var kinds []kind
	seen := map[schema.GroupResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			found.parsing = append(found.parsing, err)
			continue
		}
		for _, r := range list.APIResources {
			gvr := gv.WithResource(r.Name)
			if !r.Namespaced || !slices.Contains(r.Verbs, "delete") || !slices.Contains(r.Verbs, "list") || seen[gvr.GroupResource()] {
				continue
			}
			if gvr.GroupResource() == (schema.GroupResource{Group: "events.k8s.io", Resource: "events"}) {
				continue // these are the core group's objects under another name
			}
			seen[gvr.GroupResource()] = true
			kinds = append(kinds, kind{gvr: gvr, collection: slices.Contains(r.Verbs, "deletecollection")})
		}
	}
	return kinds
}

// delete deletes all objects of one kind, and counts the rest: pods in their grace period, objects
// with finalizers.
func (c *namespaced) delete(ctx context.Context, namespace string, k kind, found *content) {
	items, err := c.list(ctx, namespace, k)
	if err == nil && len(items) == 0 {
		return
	}
	if err == nil {
		background := metav1.DeletePropagationBackground
		options := metav1.DeleteOptions{PropagationPolicy: &background}
		if k.collection {
			err = c.client.DeleteCollection(ctx, k.gvr, namespace, options, metav1.ListOptions{})
		} else {
			for _, item := range items {
				if e := c.client.Delete(ctx, k.gvr, namespace, item.GetName(), options); e != nil && !apierrors.IsNotFound(e) {
					err = e
				}
			}
		}
	}
	if err == nil {
		items, err = c.list(ctx, namespace, k)
	}
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return // the definition of a custom resource was deleted meanwhile
	}
	if err != nil {
		found.deletion = append(found.deletion, fmt.Errorf("%s: %w", k.gvr.GroupResource(), err))
		return
	}
	if len(items) == 0 {
		return
	}
	found.remaining[k.gvr] = len(items)
	for _, item := range items {
		for _, f := range item.GetFinalizers() {
			found.finalizers[f]++
		}
	}
}

func (c *namespaced) list(ctx context.Context, namespace string, k kind) ([]metav1.Object, error) {
	list, err := c.client.List(ctx, k.gvr, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var items []metav1.Object
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		m, err := meta.Accessor(obj)
		items = append(items, m)
		return err
	})
	return items, err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Package policy maintains the status of policies: ResourceQuotas (usage of a namespace),
// PodDisruptionBudgets (allowed evictions) and ValidatingAdmissionPolicies (warnings of the type
// checker).
package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/resource/core"
)

// ResourceQuota maintains status.used of ResourceQuotas. Admission adds the usage of each write.
// This controller counts again when objects are deleted, end or change, and from time to time. It
// watches a kind once a quota limits it.
var ResourceQuota = controller.Starter{Name: "resourcequota-controller", Run: runQuota}

const (
	recount  = 5 * time.Minute
	patience = time.Second // how long quotas wait for a kind that cannot be listed
)

var (
	podResource     = schema.GroupResource{Resource: "pods"}
	serviceResource = schema.GroupResource{Resource: "services"}
	claimResource   = schema.GroupResource{Resource: "persistentvolumeclaims"}
)

type quotas struct {
	env    controller.Env
	quotas client.ViewOf[*corev1.ResourceQuota]
	work   *controller.Work[controller.Key]

	mu      sync.Mutex // guards kinds
	kinds   map[schema.GroupResource]*bounded
	opening sync.WaitGroup // goroutines of follow, started by the queue's workers only
}

// bounded is a kind that a quota limits.
type bounded struct {
	late chan struct{} // closed when quotas stop waiting for the kind
	// Closed when the View is open or has failed; the fields below are set then.
	opened chan struct{}
	view   client.View
	err    error
	ended  <-chan struct{} // of the View
}

func runQuota(ctx context.Context, env controller.Env) error {
	view, err := client.Open[*corev1.ResourceQuota](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open resource quotas: %w", err)
	}
	c := &quotas{env: env, quotas: view, kinds: map[schema.GroupResource]*bounded{}}
	c.work = controller.NewWorkOf(c.env, "resourcequota-controller", c.reconcile)
	_, done := view.Subscribe(ctx, func(e client.TypedEvent[*corev1.ResourceQuota]) {
		// Do not count after a change of the status: admission has added the usage of objects that
		// are not stored yet, and a count would remove it.
		if e.Type == client.Added || (e.Type == client.Modified && !equality.Semantic.DeepEqual(e.Old.Spec, e.Object.Spec)) {
			c.work.AddBecause(controller.KeyOf(e.Object), e.Revision)
		}
	})
	c.work.Run(ctx, 2)
	<-done
	c.opening.Wait()
	for _, k := range c.kinds {
		if k.ended != nil {
			<-k.ended
		}
	}
	return nil
}

func (c *quotas) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	q, ok := c.quotas.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	used := corev1.ResourceList{}
	byKind := map[schema.GroupResource][]corev1.ResourceName{}
	for name := range q.Spec.Hard {
		if gr, ok := core.QuotaKind(name); ok {
			byKind[gr] = append(byKind[gr], name)
		}
	}
	var failed error
	for gr, names := range byKind {
		view, err := c.view(ctx, gr)
		if err != nil {
			// Keep the old count. Without any, admission would refuse every creation.
			failed = errors.Join(failed, fmt.Errorf("count %s for quota %s: %w", gr, key, err))
			for _, name := range names {
				if before, ok := q.Status.Used[name]; ok {
					used[name] = before
				}
			}
			continue
		}
		for _, name := range names {
			used[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
		c.sum(q, gr, view, used)
	}
	if equality.Semantic.DeepEqual(q.Status.Hard, q.Spec.Hard) && equality.Semantic.DeepEqual(q.Status.Used, used) {
		return controller.Result{After: recount}, failed
	}
	q = q.DeepCopy()
	q.Status.Hard = q.Spec.Hard.DeepCopy()
	q.Status.Used = used
	_, err := client.UpdateStatus(ctx, c.env.Client, q)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err == nil {
		err = failed
	}
	return controller.Result{After: recount}, err
}

// sum adds the usage of the namespace's objects of a kind, as far as the quota limits it.
func (c *quotas) sum(q *corev1.ResourceQuota, gr schema.GroupResource, view client.View, used corev1.ResourceList) {
	now := metav1.Now()
	for _, obj := range view.List(q.Namespace, nil) {
		if !core.QuotaConcerns(q, obj) {
			continue
		}
		for name, value := range core.QuotaUsage(gr, obj, now) {
			if have, bounded := used[name]; bounded {
				have.Add(value)
				used[name] = have
			}
		}
	}
}

// view returns the View of a kind that a quota limits. It returns an error while the kind cannot be
// listed, so that quotas of other kinds do not wait for it.
func (c *quotas) view(ctx context.Context, gr schema.GroupResource) (client.View, error) {
	c.mu.Lock()
	k := c.kinds[gr]
	c.mu.Unlock()
	if k == nil {
		gvr, err := c.resolve(ctx, gr)
		if err != nil {
			return nil, err
		}
		k = c.follow(ctx, gvr)
	}
	select {
	case <-k.opened:
	case <-k.late:
	}
	select {
	case <-k.opened:
		return k.view, k.err
	default:
		return nil, fmt.Errorf("%s cannot be listed yet", gr)
	}
}

// follow opens the View of a kind. ctx is that of Run, so the View lives as long as the controller.
func (c *quotas) follow(ctx context.Context, gvr schema.GroupVersionResource) *bounded {
	gr := gvr.GroupResource()
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kinds[gr]; ok {
		return k
	}
	k := &bounded{late: make(chan struct{}), opened: make(chan struct{})}
	c.kinds[gr] = k
	late := time.AfterFunc(patience, func() { close(k.late) })
	c.opening.Go(func() {
		c.open(ctx, gvr, k)
		close(k.opened)
		if !late.Stop() {
			c.recountIn(metav1.NamespaceAll, 0)
		}
	})
	return k
}

// open returns when the View is open or has failed. Only pods, Services and claims are read whole;
// other kinds are only counted.
func (c *quotas) open(ctx context.Context, gvr schema.GroupVersionResource, k *bounded) {
	gr := gvr.GroupResource()
	whole := gr == podResource || gr == serviceResource || gr == claimResource
	if k.view, k.err = c.env.Client.View(ctx, gvr, client.Scope{MetadataOnly: !whole}); k.err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.kinds, gr) // the next reconcile tries again
		return
	}
	_, k.ended = k.view.Subscribe(ctx, func(e client.Event) {
		if e.Type != client.Added && (e.Type != client.Modified || usageChanged(gr, e)) {
			c.recountIn(controller.KeyOf(e.Object).Namespace, e.Revision)
		}
	})
}

// recountIn queues the quotas of a namespace because of a change with the revision.
func (c *quotas) recountIn(namespace string, revision int64) {
	for _, q := range c.quotas.List(namespace, nil) {
		c.work.AddBecause(controller.KeyOf(q), revision)
	}
}

// usageChanged reports whether the update may have changed the object's usage.
func usageChanged(gr schema.GroupResource, e client.Event) bool {
	now := metav1.Now()
	switch e.Object.(type) {
	case *corev1.Pod, *corev1.Service, *corev1.PersistentVolumeClaim:
		return !equality.Semantic.DeepEqual(core.QuotaUsage(gr, e.Old, now), core.QuotaUsage(gr, e.Object, now)) || scopeChanged(e.Old, e.Object)
	}
	return false
}

// scopeChanged reports whether the object may have changed its scopes.
func scopeChanged(a, b runtime.Object) bool {
	if was, ok := a.(*corev1.PersistentVolumeClaim); ok {
		is, ok := b.(*corev1.PersistentVolumeClaim)
		return ok && !slices.Equal(core.AttributesClasses(was), core.AttributesClasses(is))
	}
	was, ok := a.(*corev1.Pod)
	if !ok {
		return false
	}
	is := b.(*corev1.Pod)
	return (was.Spec.ActiveDeadlineSeconds == nil) != (is.Spec.ActiveDeadlineSeconds == nil) || was.Spec.PriorityClassName != is.Spec.PriorityClassName
}

// resolve returns the version in which to watch a kind.
func (c *quotas) resolve(ctx context.Context, gr schema.GroupResource) (schema.GroupVersionResource, error) {
	lists, err := c.env.Client.Discovery(ctx)
	if err != nil {
		slog.Debug("discovery is incomplete", "error", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || gv.Group != gr.Group {
			continue
		}
		for _, r := range list.APIResources {
			if r.Name == gr.Resource && r.Namespaced && slices.Contains(r.Verbs, "watch") {
				return gv.WithResource(r.Name), nil
			}
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("no kind %s is served", gr)
}

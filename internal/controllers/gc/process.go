package gc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/controller"
)

// errNamespacedOwner: a cluster-scoped object names an owner of a namespaced kind, which can't be looked up.
var errNamespacedOwner = errors.New("cluster-scoped objects cannot refer to namespaced owners")

// process does what is due for one object.
func (c *collector) process(ctx context.Context, it item) (controller.Result, error) {
	var done controller.Result
	k := c.watchedBy(it)
	if k == nil {
		return done, nil
	}
	obj, ok := k.find(it.namespace, it.name)
	if !ok || obj.GetUID() != it.uid {
		return done, nil
	}
	if obj.GetDeletionTimestamp() != nil {
		switch {
		case hasFinalizer(obj, metav1.FinalizerDeleteDependents):
			return done, c.releaseWhenFree(ctx, k, obj)
		case hasFinalizer(obj, metav1.FinalizerOrphanDependents):
			return done, c.orphan(ctx, k, obj)
		}
		return done, nil
	}
	if len(obj.GetOwnerReferences()) == 0 || c.allSolid(obj) {
		return done, nil
	}
	err := c.judge(ctx, k, it)
	if errors.Is(err, errNamespacedOwner) {
		return done, nil
	}
	return done, err
}

func (c *collector) watchedBy(it item) *watched {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, k := range c.kinds {
		if k.gvr == it.gvr {
			return k
		}
	}
	return nil
}

// allSolid: the Views show every owner, and none waits. The usual case, which costs no request.
func (c *collector) allSolid(obj metav1.Object) bool {
	for _, ref := range obj.GetOwnerReferences() {
		k, ok := c.kind(ref.APIVersion, ref.Kind)
		if !ok || (k.namespaced && obj.GetNamespace() == "") {
			return false
		}
		if owner, ok := k.find(ownerNamespace(k, obj), ref.Name); !ok || owner.GetUID() != ref.UID || waits(owner) {
			return false
		}
	}
	return true
}

func ownerNamespace(k *watched, obj metav1.Object) string {
	if k.namespaced {
		return obj.GetNamespace()
	}
	return ""
}

// judge reads the object and its owners fresh, and then deletes it, takes references off it, or leaves it alone.
func (c *collector) judge(ctx context.Context, k *watched, it item) error {
	fresh, err := c.env.Client.Get(ctx, it.gvr, it.namespace, it.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", it, err)
	}
	obj := accessor(fresh)
	if obj.GetUID() != it.uid || obj.GetDeletionTimestamp() != nil || len(obj.GetOwnerReferences()) == 0 {
		return nil
	}
	var solid, others []metav1.OwnerReference
	waiting := false
	for _, ref := range obj.GetOwnerReferences() {
		state, err := c.state(ctx, obj, fresh, ref)
		if err != nil {
			return err
		}
		switch state {
		case isSolid:
			solid = append(solid, ref)
		case isWaiting:
			waiting = true
			others = append(others, ref)
		default:
			others = append(others, ref)
		}
	}
	switch {
	case len(solid) > 0 && len(others) == 0:
		return nil
	case len(solid) > 0:
		c.env.Logger().Debug("garbage collector takes owners off", "object", it.String(), "owners", len(others))
		_, err := c.patchMeta(ctx, k, obj, map[string]any{"ownerReferences": solid})
		return ignoreNotFound(err)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case hasFinalizer(obj, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case hasFinalizer(obj, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	case waiting && len(c.dependents(it.uid)) > 0:
		// The owner waits for this one, so this one has to wait for its own dependents in turn. In a circle everybody would
		// wait for ever: then nobody blocks.
		if obj, err = c.breakCircle(ctx, k, obj); obj == nil || err != nil {
			return err
		}
		policy = metav1.DeletePropagationForeground
	}
	return c.delete(ctx, it, obj, policy)
}

func (c *collector) delete(ctx context.Context, it item, obj metav1.Object, policy metav1.DeletionPropagation) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	c.env.Logger().Debug("garbage collector deletes", "object", it.String(), "policy", policy)
	preconditions := &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	err := c.env.Client.Delete(ctx, it.gvr, it.namespace, it.name, metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: &policy})
	return ignoreNotFound(err)
}

// breakCircle stops the object from blocking its owners when one of its dependents waits already. It gives the object as it is then; nil when it is gone.
func (c *collector) breakCircle(ctx context.Context, k *watched, obj metav1.Object) (metav1.Object, error) {
	waits := slices.ContainsFunc(c.dependents(obj.GetUID()), func(d dependent) bool { return waits(d) })
	if !waits {
		return obj, nil
	}
	refs := slices.Clone(obj.GetOwnerReferences())
	no := false
	for i := range refs {
		refs[i].BlockOwnerDeletion = &no
	}
	written, err := c.patchMeta(ctx, k, obj, map[string]any{"ownerReferences": refs})
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	return accessor(written), nil
}

// ownerState is what an owner is like.
type ownerState int

const (
	isSolid ownerState = iota
	isAbsent
	isWaiting
)

// state reads an owner fresh.
func (c *collector) state(ctx context.Context, obj metav1.Object, regarding runtime.Object, ref metav1.OwnerReference) (ownerState, error) {
	k, ok := c.kind(ref.APIVersion, ref.Kind)
	if !ok {
		return 0, fmt.Errorf("owner of %s/%s: no kind %q is registered in %q", obj.GetNamespace(), obj.GetName(), ref.Kind, ref.APIVersion)
	}
	if k.namespaced && obj.GetNamespace() == "" {
		c.reportInvalid(regarding, ref, "")
		return 0, errNamespacedOwner
	}
	namespace := ownerNamespace(k, obj)
	owner, err := c.env.Client.Get(ctx, k.gvr, namespace, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.reportElsewhere(k, obj, regarding, ref)
		return isAbsent, nil
	case err != nil:
		return 0, fmt.Errorf("read owner %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	o := accessor(owner)
	switch {
	case o.GetUID() != ref.UID:
		return isAbsent, nil
	case waits(o):
		return isWaiting, nil
	}
	return isSolid, nil
}

// reportElsewhere says so when the owner exists, but in another namespace, which a reference can't point to.
func (c *collector) reportElsewhere(k *watched, obj metav1.Object, regarding runtime.Object, ref metav1.OwnerReference) {
	namespaces, ok := c.kind("v1", "Namespace")
	if !ok || !k.namespaced {
		return
	}
	view, ok := namespaces.shown()
	if !ok {
		return
	}
	for _, ns := range view.List("", nil) {
		if owner, ok := k.find(accessor(ns).GetName(), ref.Name); ok && owner.GetUID() == ref.UID {
			c.reportInvalid(regarding, ref, obj.GetNamespace())
			return
		}
	}
}

func (c *collector) reportInvalid(regarding runtime.Object, ref metav1.OwnerReference, namespace string) {
	c.env.Events.Eventf(regarding, nil, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "GarbageCollect",
		"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q", ref.APIVersion, ref.Kind, namespace, ref.Name, ref.UID, namespace)
}

// releaseWhenFree carries on with the foreground deletion of an owner: its dependents go first, then its finalizer. What the Views know is enough to say
// that it has to wait, and not that it is free.
func (c *collector) releaseWhenFree(ctx context.Context, k *watched, obj metav1.Object) error {
	if c.heldUp(k, obj, c.dependents(obj.GetUID())) {
		return nil
	}
	// One kind that is away must not hold up the deletions of all: a dependent of it that is missed goes later, since its owner is absent.
	dependents, err := c.dependentsNow(ctx, k, obj, true)
	if err != nil || c.heldUp(k, obj, dependents) {
		return err
	}
	return c.removeFinalizer(ctx, k, obj, metav1.FinalizerDeleteDependents)
}

// heldUp says whether the dependents block the owner, and has them looked at.
func (c *collector) heldUp(k *watched, obj metav1.Object, dependents []dependent) bool {
	blocked := false
	for _, d := range dependents {
		if blocks(d, obj.GetUID()) && d.GetNamespace() == namespaceFor(k, obj, d) {
			blocked = true
		}
		if d.GetDeletionTimestamp() == nil || waits(d) {
			c.work.Add(d.item())
		}
	}
	return blocked
}

// namespaceFor is where a dependent of obj has to live to count: in obj's namespace, or anywhere for a cluster-scoped one.
func namespaceFor(k *watched, obj, dependent metav1.Object) string {
	if k.namespaced {
		return obj.GetNamespace()
	}
	return dependent.GetNamespace()
}

// orphan takes the owner's reference off each dependent, then the finalizer off the owner. A dependent that was there
// when the deletion was asked for must not be missed: it would be collected a moment later.
func (c *collector) orphan(ctx context.Context, k *watched, obj metav1.Object) error {
	dependents, err := c.dependentsNow(ctx, k, obj, false)
	if err != nil {
		return err
	}
	for _, d := range dependents {
		refs := slices.DeleteFunc(slices.Clone(d.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return r.UID == obj.GetUID() })
		if _, err := c.patchMeta(ctx, d.kind, d, map[string]any{"ownerReferences": refs}); ignoreNotFound(err) != nil {
			return fmt.Errorf("orphan %s: %w", d.item(), err)
		}
	}
	return c.removeFinalizer(ctx, k, obj, metav1.FinalizerOrphanDependents)
}

func (c *collector) removeFinalizer(ctx context.Context, k *watched, obj metav1.Object, name string) error {
	rest := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == name })
	_, err := c.patchMeta(ctx, k, obj, map[string]any{"finalizers": rest})
	return ignoreNotFound(err)
}

// patchMeta changes metadata of exactly this version of the object: one that a View shows late is not changed. A merge patch works for every kind, custom
// ones too.
func (c *collector) patchMeta(ctx context.Context, k *watched, obj metav1.Object, metadata map[string]any) (runtime.Object, error) {
	metadata["uid"], metadata["resourceVersion"] = obj.GetUID(), obj.GetResourceVersion()
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	return c.env.Client.Patch(ctx, k.gvr, obj.GetNamespace(), obj.GetName(), types.MergePatchType, data, metav1.PatchOptions{})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

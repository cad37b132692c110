package gc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/controller"
)

// errNamespacedOwner means that a cluster-scoped object names an owner of a namespaced kind, which
// cannot be looked up.
var errNamespacedOwner = errors.New("cluster-scoped objects cannot refer to namespaced owners")

// process takes the next step for one object: release its dependents, delete it, or leave it alone.
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

// allSolid reports whether the Views show every owner and none of the owners waits. This is the
// usual case and costs no request.
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

// judge reads the object and its owners fresh. Then it deletes the object, removes owner
// references, or leaves the object alone.
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
		c.env.Logger().Debug("garbage collector removes owner references", "object", it.String(), "owners", len(others))
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
		// The owner waits for this object, so the object has to wait for its own dependents first.
		// In a circle of owners all would wait forever, so breakCircle makes the object stop
		// blocking.
		if obj, err = c.breakCircle(ctx, k, obj); obj == nil || err != nil {
			return err
		}
		policy = metav1.DeletePropagationForeground
	}
	return c.delete(ctx, it, obj, policy)
}

func (c *collector) delete(ctx context.Context, it item, obj metav1.Object, policy metav1.DeletionPropagation) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	c.env.Logger().Debug("garbage collector deletes an object", "object", it.String(), "policy", policy)
	preconditions := &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	err := c.env.Client.Delete(ctx, it.gvr, it.namespace, it.name, metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: &policy})
	return ignoreNotFound(err)
}

// breakCircle stops the object from blocking its owners if one of its dependents already waits. It
// returns the changed object, or nil if the object is gone.
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

// ownerState is the result of reading an owner: solid, absent or waiting.
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

// reportElsewhere sends an Event if the owner exists in another namespace, where a reference cannot
// point.
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

// releaseWhenFree continues the foreground deletion of an owner: its dependents are deleted first,
// then its finalizer is removed. The Views suffice to see that the owner must wait, but not that it
// is free.
func (c *collector) releaseWhenFree(ctx context.Context, k *watched, obj metav1.Object) error {
	if c.heldUp(k, obj, c.dependents(obj.GetUID())) {
		return nil
	}
	// One kind that cannot be listed must not block the deletions of all other kinds. A dependent
	// missed here is deleted later, when its owner is absent.
	dependents, err := c.dependentsNow(ctx, k, obj, true)
	if err != nil || c.heldUp(k, obj, dependents) {
		return err
	}
	return c.removeFinalizer(ctx, k, obj, metav1.FinalizerDeleteDependents)
}

// heldUp reports whether a dependent blocks the owner, and queues the dependents that need a step.
func (c *collector) heldUp(k *watched, obj metav1.Object, dependents []dependent) bool {
	blocked := false
	for _, d := range dependents {
		if blocks(d, obj.GetUID()) && d.GetNamespace() == namespaceFor(k, obj, d) {
			blocked = true
		}
		if d.GetDeletionTimestamp() == nil || waits(d) {
			c.work.AddBecause(d.item(), revisionOf(obj))
		}
	}
	return blocked
}

// revisionOf returns the revision of an object's version, or 0.
func revisionOf(obj metav1.Object) int64 {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// namespaceFor returns the namespace in which a dependent counts: the owner's own, or any for a
// cluster-scoped owner.
func namespaceFor(k *watched, obj, dependent metav1.Object) string {
	if k.namespaced {
		return obj.GetNamespace()
	}
	return dependent.GetNamespace()
}

// orphan removes the reference to the owner from each dependent, then the finalizer from the owner.
// It must not miss a dependent that existed when the deletion was requested: that dependent would
// be collected a moment later.
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

// patchMeta patches metadata of exactly this version of the object, so a stale View leads to a
// conflict. A merge patch works for every kind, also for custom resources.
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

package verb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/store"
)

// Delete removes the named object, or marks it as being deleted if it has finalizers or a grace
// period. It returns the object's last state, and whether it is gone.
func (op *Operation) Delete(ctx context.Context, opts *metav1.DeleteOptions) (out runtime.Object, gone bool, err error) {
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, false, api.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	op.warnAboutOrphans(opts)
	r := op.Endpoint.Registry
	key := r.Key(op.Namespace, op.Name)
	err = op.withRetries(ctx, key, func(c registry.StoredState, fresh bool) (next *registry.StoredState, err error) {
		if c.Obj == nil {
			return nil, apierrors.NewNotFound(r.Resource, op.Name)
		}
		out, gone, next, err = op.deleteOnce(ctx, key, c, fresh, opts.DeepCopy())
		return next, err
	})
	if err != nil {
		return nil, false, err
	}
	return out, gone, nil
}

// warnAboutOrphans warns about jobs that are deleted without a propagation policy, because their
// pods stay.
func (op *Operation) warnAboutOrphans(opts *metav1.DeleteOptions) {
	if op.Endpoint.Resource == jobs && opts.PropagationPolicy == nil && opts.OrphanDependents == nil {
		op.Warn("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning")
	}
}

func (op *Operation) deleteOnce(ctx context.Context, key string, c registry.StoredState, fresh bool, opts *metav1.DeleteOptions) (out runtime.Object, gone bool, next *registry.StoredState, err error) {
	if err := op.checkPreconditions(opts.Preconditions, wire.Accessor(c.Obj)); err != nil {
		return nil, false, nil, err
	}
	if err := op.admitDeletion(ctx, c.Obj, opts); err != nil {
		return nil, false, nil, err
	}
	obj := c.Obj.DeepCopyObject()
	if hook := op.Endpoint.Hooks.MarkDeleted; hook != nil && wire.Accessor(obj).GetDeletionTimestamp() == nil {
		hook(obj, op.Endpoint.Shared.Now())
		next, err := op.commitMark(ctx, key, c, obj)
		return obj, false, next, err
	}
	switch op.markDeleted(obj, opts) {
	case deletePending:
		next, err := op.newerState(ctx, key, c, fresh)
		return obj, false, next, err
	case deleteMark:
		next, err := op.commitMark(ctx, key, c, obj)
		return obj, false, next, err
	}
	if op.DryRun {
		return obj, true, nil, nil
	}
	revision, next, err := op.remove(ctx, key, c)
	if err != nil || next != nil {
		return nil, false, next, err
	}
	wire.Accessor(obj).SetResourceVersion(strconv.FormatInt(revision, 10))
	return obj, true, nil, nil
}

// admitDeletion runs admission. It skips a namespace whose content is already being deleted,
// because the request changes nothing.
func (op *Operation) admitDeletion(ctx context.Context, obj runtime.Object, opts *metav1.DeleteOptions) error {
	if ns, ok := obj.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) > 0 {
		return nil
	}
	a := op.Attributes(admission.Delete, nil, obj)
	if op.Verb == "deletecollection" {
		a.Name = "" // the path has no name, so upstream's webhooks get none; the old object has it
	}
	if op.hasOwnDeletion() {
		told := opts.DeepCopy() // delete only the object that admission sees
		if told.Preconditions == nil {
			told.Preconditions = &metav1.Preconditions{}
		}
		if told.Preconditions.UID == nil {
			uid := wire.Accessor(obj).GetUID()
			told.Preconditions.UID = &uid
		}
		a.Options = told
	}
	if err := op.Admit(ctx, a); err != nil {
		return err
	}
	return op.ValidateAdmission(ctx, a)
}

// hasOwnDeletion reports whether the kind has its own deletion: namespaces and definitions of
// custom resources.
func (op *Operation) hasOwnDeletion() bool {
	return op.Endpoint.Hooks.MarkDeleted != nil || op.Endpoint.Resource == namespaces
}

func (op *Operation) checkPreconditions(p *metav1.Preconditions, meta metav1.Object) error {
	if p == nil {
		return nil
	}
	if op.hasOwnDeletion() {
		return op.storedPreconditions(p, meta)
	}
	// Conflicts name the kind in the store.
	kind := schema.GroupResource{Group: op.Endpoint.Hub.Group, Resource: op.Endpoint.Hub.Kind}
	if p.UID != nil && *p.UID != meta.GetUID() {
		return apierrors.NewConflict(kind, op.Name, fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, meta.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != meta.GetResourceVersion() {
		return apierrors.NewConflict(kind, op.Name, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, meta.GetResourceVersion()))
	}
	return nil
}

// storedPreconditions checks the preconditions of namespaces and of custom resource definitions,
// for which upstream's store answers in other words.
func (op *Operation) storedPreconditions(p *metav1.Preconditions, meta metav1.Object) error {
	if p.UID != nil && *p.UID != meta.GetUID() {
		return apierrors.NewConflict(op.Endpoint.Resource, op.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, meta.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != meta.GetResourceVersion() {
		return apierrors.NewConflict(op.Endpoint.Resource, op.Name, fmt.Errorf(
			"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, meta.GetResourceVersion()))
	}
	return nil
}

var namespaces = schema.GroupResource{Resource: "namespaces"}

// jobs keep their pods by default and warn about it.
var jobs = schema.GroupResource{Group: "batch", Resource: "jobs"}

type deleteStep int

const (
	deleteNow     deleteStep = iota // nothing delays the deletion
	deleteMark                      // store the mark
	deletePending                   // it is already being deleted, and this request changes nothing
)

// markDeleted sets the deletion's metadata on obj and returns the next step.
func (op *Operation) markDeleted(obj runtime.Object, opts *metav1.DeleteOptions) deleteStep {
	meta := wire.Accessor(obj)
	ns, isNamespace := obj.(*corev1.Namespace)
	if isNamespace && meta.GetDeletionTimestamp() != nil && len(ns.Spec.Finalizers) > 0 {
		return deletePending // the propagation to its content is already decided
	}
	graceful, pending := op.applyGracePeriod(obj, meta, opts)
	if pending {
		return deletePending
	}
	stored := meta.GetFinalizers()
	finalizersChanged := op.applyPropagation(meta, opts)
	waits := len(meta.GetFinalizers()) > 0 || isNamespace && len(ns.Spec.Finalizers) > 0
	if isNamespace && waits && ns.Status.Phase != corev1.NamespaceTerminating {
		ns.Status.Phase = corev1.NamespaceTerminating
		finalizersChanged = true
	}
	switch {
	case graceful && (waits || *meta.GetDeletionGracePeriodSeconds() > 0):
		return deleteMark
	case !waits:
		if !graceful {
			// Nothing is written before the removal, and the answer shows the stored finalizers.
			meta.SetFinalizers(stored)
		}
		return deleteNow
	case meta.GetDeletionTimestamp() != nil && !finalizersChanged && !graceful:
		return deletePending
	}
	if !graceful {
		op.setDeletion(meta, 0, isNamespace)
	}
	return deleteMark
}

// applyGracePeriod applies the grace period. graceful reports that it marked obj; pending, that an
// earlier, shorter period is running.
func (op *Operation) applyGracePeriod(obj runtime.Object, meta metav1.Object, opts *metav1.DeleteOptions) (graceful, pending bool) {
	check := op.Endpoint.Strategy.GracefulDelete
	if check == nil {
		return false, false
	}
	if at := meta.GetDeletionTimestamp(); at != nil {
		running := meta.GetDeletionGracePeriodSeconds()
		// The period is over, but the finalizers may still change.
		if running == nil || *running == 0 {
			return false, false
		}
		if opts.GracePeriodSeconds == nil || *opts.GracePeriodSeconds >= *running {
			return false, true
		}
		// A new grace period must be shorter than the running one; it counts from the same
		// beginning.
		begun := at.Add(-time.Duration(*running) * time.Second)
		ends := metav1.NewTime(begun.Add(time.Duration(*opts.GracePeriodSeconds) * time.Second))
		seconds := *opts.GracePeriodSeconds
		meta.SetDeletionTimestamp(&ends)
		meta.SetDeletionGracePeriodSeconds(&seconds)
		return true, false
	}
	seconds, ok := check(obj, opts)
	if !ok {
		return false, false
	}
	op.setDeletion(meta, seconds, false)
	return true, false
}

func (op *Operation) setDeletion(meta metav1.Object, seconds int64, withoutGrace bool) {
	if meta.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(op.Endpoint.Shared.Now().Add(time.Duration(seconds) * time.Second))
		meta.SetDeletionTimestamp(&at)
		if meta.GetGeneration() > 0 {
			meta.SetGeneration(meta.GetGeneration() + 1)
		}
	}
	if !withoutGrace {
		meta.SetDeletionGracePeriodSeconds(&seconds)
	}
}

// applyPropagation sets the garbage collector's finalizers by the propagation policy.
func (op *Operation) applyPropagation(meta metav1.Object, opts *metav1.DeleteOptions) (changed bool) {
	before := meta.GetFinalizers()
	after := slices.Clone(before)
	set := func(finalizer string, wanted bool) {
		switch has := slices.Contains(after, finalizer); {
		case has && !wanted:
			after = slices.DeleteFunc(after, func(f string) bool { return f == finalizer })
		case wanted && !has:
			after = append(after, finalizer)
		}
	}
	orphan, foreground := op.propagation(before, opts)
	set(metav1.FinalizerOrphanDependents, orphan)
	set(metav1.FinalizerDeleteDependents, foreground)
	if slices.Equal(before, after) {
		return false
	}
	meta.SetFinalizers(after)
	return true
}

func (op *Operation) propagation(finalizers []string, opts *metav1.DeleteOptions) (orphan, foreground bool) {
	switch {
	case op.Endpoint.IsEvents(): // events own nothing
		return false, false
	// Upstream deletes a namespace's dependents before the namespace.
	case opts.OrphanDependents != nil:
		return *opts.OrphanDependents, !*opts.OrphanDependents && op.Endpoint.Resource == namespaces
	case opts.PropagationPolicy != nil:
		return *opts.PropagationPolicy == metav1.DeletePropagationOrphan, *opts.PropagationPolicy == metav1.DeletePropagationForeground
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return true, false
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return false, true
	}
	policy := op.Endpoint.Strategy.DefaultPropagation
	return policy == metav1.DeletePropagationOrphan, policy == metav1.DeletePropagationForeground
}

// commitMark stores an object that is being deleted.
func (op *Operation) commitMark(ctx context.Context, key string, c registry.StoredState, obj runtime.Object) (*registry.StoredState, error) {
	r := op.Endpoint.Registry
	if op.DryRun {
		return nil, nil
	}
	stored, err := r.Codec.Encode(obj)
	if err != nil {
		return nil, err
	}
	t := op.newTxn()
	t.Add(store.Condition{Key: key, ModRevision: c.Revision}, store.Op{Key: key, Value: stored})
	t.Describe(obj, causes.Deleting)
	res, err := t.Commit(ctx)
	if err != nil {
		return nil, err
	}
	if !res.Succeeded {
		return op.conflictingState(t, res, key, c)
	}
	wire.Accessor(obj).SetResourceVersion(strconv.FormatInt(res.Revision, 10))
	r.WaitVisible(ctx, res.Revision)
	return nil, nil
}

// remove deletes the key if it is still in the state c.
func (op *Operation) remove(ctx context.Context, key string, c registry.StoredState) (revision int64, next *registry.StoredState, err error) {
	r := op.Endpoint.Registry
	t := op.newTxn()
	if r.Hooks.Remove != nil {
		if err := r.Hooks.Remove(ctx, t, c.Obj); err != nil {
			return 0, nil, err
		}
	}
	t.Add(store.Condition{Key: key, ModRevision: c.Revision}, store.Op{Key: key, Delete: true})
	t.Describe(c.Obj, causes.Removed)
	if failpoint.Bug("delete-without-condition") {
		t.Conditions = nil
	}
	res, err := t.Commit(ctx)
	if err != nil {
		return 0, nil, err
	}
	if !res.Succeeded {
		next, err := op.conflictingState(t, res, key, c)
		return 0, next, err
	}
	r.WaitVisible(ctx, res.Revision)
	return res.Revision, nil, nil
}

package apiserver

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
	"github.com/knarr-project/knarr/internal/store"
)

// delete removes the named object, or marks it as being deleted if it has finalizers or a grace
// period. It returns the object's last state, and whether it is gone.
func (op *operation) delete(ctx context.Context, opts *metav1.DeleteOptions) (out runtime.Object, gone bool, err error) {
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, false, api.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	op.warnOfOrphans(opts)
	r := op.endpoint.registry
	key := r.key(op.namespace, op.name)
	err = op.onState(ctx, key, func(c current, fresh bool) (next *current, err error) {
		if c.obj == nil {
			return nil, apierrors.NewNotFound(r.resource, op.name)
		}
		out, gone, next, err = op.deleteOnce(ctx, key, c, fresh, opts.DeepCopy())
		return next, err
	})
	if err != nil {
		return nil, false, err
	}
	return out, gone, nil
}

// warnOfOrphans warns about jobs that are deleted without a propagation policy, because their pods
// stay.
func (op *operation) warnOfOrphans(opts *metav1.DeleteOptions) {
	if op.endpoint.resource == jobs && opts.PropagationPolicy == nil && opts.OrphanDependents == nil {
		op.warn("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning")
	}
}

func (op *operation) deleteOnce(ctx context.Context, key string, c current, fresh bool, opts *metav1.DeleteOptions) (out runtime.Object, gone bool, next *current, err error) {
	if err := op.checkPreconditions(opts.Preconditions, accessor(c.obj)); err != nil {
		return nil, false, nil, err
	}
	if err := op.admitDeletion(ctx, c.obj, opts); err != nil {
		return nil, false, nil, err
	}
	obj := c.obj.DeepCopyObject()
	if hook := op.endpoint.hooks.deleting; hook != nil && accessor(obj).GetDeletionTimestamp() == nil {
		hook(obj, op.endpoint.shared.now())
		next, err := op.commitMark(ctx, key, c, obj)
		return obj, false, next, err
	}
	switch op.markDeleted(obj, opts) {
	case deletePending:
		next, err := op.overtaken(ctx, key, c, fresh)
		return obj, false, next, err
	case deleteMark:
		next, err := op.commitMark(ctx, key, c, obj)
		return obj, false, next, err
	}
	if op.dryRun {
		return obj, true, nil, nil
	}
	revision, next, err := op.remove(ctx, key, c)
	if err != nil || next != nil {
		return nil, false, next, err
	}
	accessor(obj).SetResourceVersion(strconv.FormatInt(revision, 10))
	return obj, true, nil, nil
}

// admitDeletion runs admission. It skips a namespace whose content is already being deleted,
// because the request changes nothing.
func (op *operation) admitDeletion(ctx context.Context, obj runtime.Object, opts *metav1.DeleteOptions) error {
	if ns, ok := obj.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) > 0 {
		return nil
	}
	a := op.attributes(admission.Delete, nil, obj)
	if op.verb == "deletecollection" {
		a.Name = "" // the path has no name, so upstream's webhooks get none; the old object has it
	}
	if op.ownDeletion() {
		told := opts.DeepCopy() // delete only the object that admission sees
		if told.Preconditions == nil {
			told.Preconditions = &metav1.Preconditions{}
		}
		if told.Preconditions.UID == nil {
			uid := accessor(obj).GetUID()
			told.Preconditions.UID = &uid
		}
		a.Options = told
	}
	if err := op.admit(ctx, a); err != nil {
		return err
	}
	return op.validateAdmission(ctx, a)
}

// ownDeletion reports whether the kind has its own deletion: namespaces and definitions of custom
// resources.
func (op *operation) ownDeletion() bool {
	return op.endpoint.hooks.deleting != nil || op.endpoint.resource == namespaces
}

func (op *operation) checkPreconditions(p *metav1.Preconditions, meta metav1.Object) error {
	if p == nil {
		return nil
	}
	if op.ownDeletion() {
		return op.storedPreconditions(p, meta)
	}
	// Conflicts name the kind in the store.
	kind := schema.GroupResource{Group: op.endpoint.hub.Group, Resource: op.endpoint.hub.Kind}
	if p.UID != nil && *p.UID != meta.GetUID() {
		return apierrors.NewConflict(kind, op.name, fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, meta.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != meta.GetResourceVersion() {
		return apierrors.NewConflict(kind, op.name, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, meta.GetResourceVersion()))
	}
	return nil
}

// storedPreconditions checks the preconditions of namespaces and of custom resource definitions,
// for which upstream's store answers in other words.
func (op *operation) storedPreconditions(p *metav1.Preconditions, meta metav1.Object) error {
	if p.UID != nil && *p.UID != meta.GetUID() {
		return apierrors.NewConflict(op.endpoint.resource, op.name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, meta.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != meta.GetResourceVersion() {
		return apierrors.NewConflict(op.endpoint.resource, op.name, fmt.Errorf(
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
func (op *operation) markDeleted(obj runtime.Object, opts *metav1.DeleteOptions) deleteStep {
	meta := accessor(obj)
	ns, isNamespace := obj.(*corev1.Namespace)
	if isNamespace && meta.GetDeletionTimestamp() != nil && len(ns.Spec.Finalizers) > 0 {
		return deletePending // the propagation to its content is already decided
	}
	graceful, pending := op.takeGrace(obj, meta, opts)
	if pending {
		return deletePending
	}
	stored := meta.GetFinalizers()
	finalizersChanged := op.takeFinalizers(meta, opts)
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

// takeGrace applies the grace period. graceful reports that it marked obj; pending, that an
// earlier, shorter period is running.
func (op *operation) takeGrace(obj runtime.Object, meta metav1.Object, opts *metav1.DeleteOptions) (graceful, pending bool) {
	check := op.endpoint.strategy.GracefulDelete
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

func (op *operation) setDeletion(meta metav1.Object, seconds int64, withoutGrace bool) {
	if meta.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(op.endpoint.shared.now().Add(time.Duration(seconds) * time.Second))
		meta.SetDeletionTimestamp(&at)
		if meta.GetGeneration() > 0 {
			meta.SetGeneration(meta.GetGeneration() + 1)
		}
	}
	if !withoutGrace {
		meta.SetDeletionGracePeriodSeconds(&seconds)
	}
}

// takeFinalizers sets the garbage collector's finalizers by the propagation policy.
func (op *operation) takeFinalizers(meta metav1.Object, opts *metav1.DeleteOptions) (changed bool) {
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

func (op *operation) propagation(finalizers []string, opts *metav1.DeleteOptions) (orphan, foreground bool) {
	switch {
	case op.endpoint.ofEvents(): // events own nothing
		return false, false
	// Upstream deletes a namespace's dependents before the namespace.
	case opts.OrphanDependents != nil:
		return *opts.OrphanDependents, !*opts.OrphanDependents && op.endpoint.resource == namespaces
	case opts.PropagationPolicy != nil:
		return *opts.PropagationPolicy == metav1.DeletePropagationOrphan, *opts.PropagationPolicy == metav1.DeletePropagationForeground
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return true, false
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return false, true
	}
	policy := op.endpoint.strategy.DefaultPropagation
	return policy == metav1.DeletePropagationOrphan, policy == metav1.DeletePropagationForeground
}

// commitMark stores an object that is being deleted.
func (op *operation) commitMark(ctx context.Context, key string, c current, obj runtime.Object) (*current, error) {
	r := op.endpoint.registry
	if op.dryRun {
		return nil, nil
	}
	stored, err := r.codec.encode(obj)
	if err != nil {
		return nil, err
	}
	t := op.newTxn()
	t.add(store.Condition{Key: key, ModRevision: c.revision}, store.Op{Key: key, Value: stored})
	res, err := t.commit(ctx)
	if err != nil {
		return nil, err
	}
	if !res.Succeeded {
		return op.refused(t, res, key, c)
	}
	accessor(obj).SetResourceVersion(strconv.FormatInt(res.Revision, 10))
	r.settle(ctx, res.Revision)
	return nil, nil
}

// remove deletes the key if it is still in the state c.
func (op *operation) remove(ctx context.Context, key string, c current) (revision int64, next *current, err error) {
	r := op.endpoint.registry
	t := op.newTxn()
	if r.hooks.remove != nil {
		if err := r.hooks.remove(ctx, t, c.obj); err != nil {
			t.fail()
			return 0, nil, err
		}
	}
	t.add(store.Condition{Key: key, ModRevision: c.revision}, store.Op{Key: key, Delete: true})
	res, err := t.commit(ctx)
	if err != nil {
		return 0, nil, err
	}
	if !res.Succeeded {
		next, err := op.refused(t, res, key, c)
		return 0, next, err
	}
	r.settle(ctx, res.Revision)
	return res.Revision, nil, nil
}

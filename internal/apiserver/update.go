package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/store"
)

// errModified is the cause of a Conflict, in upstream's words, which clients show.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// change returns the wanted state of a stored object. old is shared and read-only. It is nil if the
// object does not exist; then the change creates it, if that is allowed. A change runs again on a
// newer state if the write conflicts with another.
type change func(ctx context.Context, old runtime.Object) (runtime.Object, error)

// update writes the state that fn returns for the named object. created reports that the object did
// not exist before.
func (op *operation) update(ctx context.Context, allowCreate bool, fn change) (out runtime.Object, created bool, err error) {
	r := op.endpoint.registry
	key := r.key(op.namespace, op.name)
	err = op.onState(ctx, key, func(c current, fresh bool) (next *current, err error) {
		if created = c.obj == nil; !created {
			out, next, err = op.updateOnce(ctx, key, c, fresh, fn)
			return next, err
		}
		if !allowCreate {
			return nil, apierrors.NewNotFound(r.resource, op.name)
		}
		if out, err = op.createByUpdate(ctx, fn); apierrors.IsAlreadyExists(err) {
			c, _, err = r.load(ctx, key, true)
			return &c, err
		}
		return nil, err
	})
	if err != nil {
		return nil, false, err
	}
	return out, created, nil
}

// onState calls once with the named object's state. It repeats the call with next, if once found
// that the object had changed, and with the newest state if once failed on a state that may have
// been stale.
func (op *operation) onState(ctx context.Context, key string, once func(c current, fresh bool) (next *current, err error)) error {
	r := op.endpoint.registry
	c, fresh, err := r.load(ctx, key, op.dryRun)
	if err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return storeError(err)
		}
		next, err := once(c, fresh)
		switch {
		case err == nil && next == nil:
			return nil
		case err == nil:
			c, fresh = *next, true
		case fresh && !errors.Is(err, errRetry):
			return err
		default:
			newest, _, loadErr := r.load(ctx, key, true)
			if loadErr != nil {
				return loadErr
			}
			if newest.revision == c.revision && !errors.Is(err, errRetry) {
				return err
			}
			c, fresh = newest, true
		}
	}
}

// createByUpdate creates the object of a PUT or an apply.
func (op *operation) createByUpdate(ctx context.Context, fn change) (runtime.Object, error) {
	op.creates = true
	obj, err := fn(ctx, nil)
	if err != nil {
		return nil, err
	}
	meta := accessor(obj)
	if meta.GetUID() != "" && op.verb != "patch" {
		return nil, op.anotherUID(meta.GetUID(), "")
	}
	if rv := meta.GetResourceVersion(); rv != "" { // any number is allowed
		if _, err := strconv.ParseUint(rv, 10, 64); err != nil {
			return nil, unnamed(err)
		}
	}
	if meta.GetUID() != "" {
		return nil, apierrors.NewConflict(op.endpoint.resource, op.name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", meta.GetUID()))
	}
	if err := op.takeNamespace(meta); err != nil {
		return nil, err
	}
	if err := op.admit(ctx, op.attributes(admission.Create, obj, nil)); err != nil {
		return nil, err
	}
	return op.createAgain(ctx, obj)
}

// authorizeCreate checks that the user may create the object that an update or a patch is about to
// create.
func (op *operation) authorizeCreate(ctx context.Context) error {
	a := auth.Attributes{
		User: op.user, Verb: "create", Namespace: op.namespace, Group: op.endpoint.gvr.Group, Version: op.endpoint.gvr.Version, Resource: op.endpoint.gvr.Resource, Name: op.name,
	}
	if op.endpoint.resource == (schema.GroupResource{Resource: "namespaces"}) {
		a.Namespace = op.name // as in the request's path
	}
	decision, reason, err := op.engine.access.Authorizer().Authorize(ctx, a)
	switch {
	case decision == auth.Allow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	return auth.Forbidden(a, reason)
}

// updateOnce tries the change on one state; fresh means that it came from the store. next is the
// newer state if the object has changed meanwhile.
func (op *operation) updateOnce(ctx context.Context, key string, c current, fresh bool, fn change) (out runtime.Object, next *current, err error) {
	r := op.endpoint.registry
	obj, err := fn(ctx, c.obj)
	if err != nil {
		return nil, nil, err
	}
	t := op.newTxn()
	if err := op.prepareUpdate(ctx, t, obj, c); err != nil {
		t.fail()
		return nil, nil, err
	}
	meta, old := accessor(obj), accessor(c.obj)
	if r.removedByUpdate(obj, c.obj) {
		t.fail()
		return op.commitRemoval(ctx, key, c, obj)
	}
	keepManagedTimes(r, obj, c)
	stored, err := r.codec.encode(obj)
	if err != nil {
		return nil, nil, err
	}
	if bytes.Equal(stored, c.stored) && !r.stale(ctx, key) {
		t.fail()
		meta.SetResourceVersion(old.GetResourceVersion())
		next, err := op.overtaken(ctx, key, c, fresh)
		if err == nil && next == nil {
			obj, err = r.asStored(obj)
		}
		return obj, next, err
	}
	if op.dryRun {
		t.fail()
		out, err := r.asStored(obj)
		return out, nil, err
	}
	lease, err := r.shared.lease(ctx, r)
	if err != nil {
		t.fail()
		return nil, nil, err
	}
	t.put(store.Condition{Key: key, ModRevision: c.revision}, obj, stored, lease)
	res, err := t.commit(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !res.Succeeded {
		next, err := op.refused(t, res, key, c)
		return nil, next, err
	}
	r.shared.writes.written(op.subresource, c.obj, obj)
	meta.SetResourceVersion(strconv.FormatInt(res.Revision, 10))
	r.settle(ctx, res.Revision)
	out, err = r.asRead(obj, t.stored(), res.Revision)
	return out, nil, err
}

// overtaken returns the newest state if a request that writes nothing was decided on a stale one:
// there is no transaction that would detect it.
func (op *operation) overtaken(ctx context.Context, key string, c current, fresh bool) (next *current, err error) {
	if fresh {
		return nil, nil
	}
	newest, _, err := op.endpoint.registry.load(ctx, key, true)
	if err != nil || newest.revision == c.revision {
		return nil, err
	}
	return &newest, nil
}

// refused returns the state that made the transaction fail.
func (op *operation) refused(t *txn, res store.TxnResult, key string, c current) (*current, error) {
	for i, cond := range t.conditions {
		if cond.Key != key {
			continue
		}
		found, err := op.endpoint.fromStore(res.Current[i])
		if err != nil {
			return nil, err
		}
		if found.revision == c.revision {
			return nil, errRetry // another key changed, not this object
		}
		return &found, nil
	}
	return nil, errRetry
}

// prepareUpdate sets the fields that the server decides and validates the new state.
func (op *operation) prepareUpdate(ctx context.Context, t *txn, obj runtime.Object, c current) error {
	r := op.endpoint.registry
	if op.raw {
		if r.hooks.update != nil {
			return r.hooks.update(ctx, t, obj, c.obj)
		}
		return nil
	}
	meta, old := accessor(obj), accessor(c.obj)
	if err := op.checkVersion(meta, old); err != nil {
		return err
	}
	if r.kind.Namespaced && meta.GetNamespace() == "" {
		meta.SetNamespace(old.GetNamespace())
	}
	meta.SetGeneration(old.GetGeneration())
	if !op.dryRun { // selfLink is not stored; a dry run shows it as sent
		meta.SetSelfLink("")
	}
	if r.hooks.stamp != nil {
		r.hooks.stamp(obj, r.shared.now())
	}
	prepare, validate := op.updateRules()
	if prepare != nil {
		prepare(obj, c.obj)
	}
	if stamp := op.endpoint.strategy.Stamp; stamp != nil {
		stamp(obj, c.obj, op.endpoint.shared.now())
	}
	if meta.GetUID() == "" {
		meta.SetUID(old.GetUID())
	}
	// Fields that the server has set are kept without an error, as upstream does.
	meta.SetCreationTimestamp(old.GetCreationTimestamp())
	if at := old.GetDeletionTimestamp(); at != nil {
		meta.SetDeletionTimestamp(at)
	}
	if seconds := old.GetDeletionGracePeriodSeconds(); seconds != nil && meta.GetDeletionGracePeriodSeconds() == nil {
		meta.SetDeletionGracePeriodSeconds(seconds)
	}
	if r.hooks.update != nil {
		if err := r.hooks.update(ctx, t, obj, c.obj); err != nil {
			return err
		}
	}
	a := op.attributes(admission.Update, obj, c.obj)
	errs, err := op.validateFields(ctx, a)
	if err != nil {
		return err
	}
	errs = append(errs, r.strategy.ValidateMetaUpdate(meta, old, r.kind.Namespaced, op.subresource)...)
	if validate != nil {
		errs = append(errs, validate(obj, c.obj)...)
	}
	if len(errs) > 0 {
		return api.Invalid(op.invalidKind(obj), meta.GetName(), errs)
	}
	if t.late != nil {
		return t.late
	}
	if op.subresource == "scale" {
		if err := op.endpoint.showScales(a); err != nil {
			return err
		}
	}
	if err := op.validateAdmission(ctx, a); err != nil {
		return err
	}
	if r.strategy.Warnings != nil && op.subresource == "" {
		for _, w := range r.strategy.Warnings(obj, c.obj) {
			op.warn(w)
		}
	}
	return nil
}

// updateRules returns the kind's rules for the object itself or for the subresource.
func (op *operation) updateRules() (prepare func(obj, old runtime.Object), validate func(obj, old runtime.Object) field.ErrorList) {
	s := op.endpoint.strategy
	switch op.subresource {
	case "", "scale":
		return s.PrepareUpdate, s.ValidateUpdate
	case "status":
		if s.PrepareStatus == nil {
			return keepAllButStatus, s.ValidateStatus
		}
		return s.PrepareStatus, s.ValidateStatus
	}
	u, ok := s.Subresource[op.subresource]
	if !ok {
		u = resource.UpdateStrategy{}
	}
	return u.Prepare, u.Validate
}

// checkVersion is the optimistic concurrency control: the writer must have seen the state that it
// replaces.
func (op *operation) checkVersion(meta, old metav1.Object) error {
	rv := meta.GetResourceVersion()
	switch {
	case rv == "" || rv == "0":
		if op.endpoint.strategy.AllowUnconditionalUpdate {
			meta.SetResourceVersion(old.GetResourceVersion())
			return nil
		}
		kind := op.endpoint.gvk.GroupKind()
		kind.Kind = op.endpoint.gvr.Resource // as upstream names it here
		return api.Invalid(kind, op.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case rv != old.GetResourceVersion():
		if _, err := strconv.ParseUint(rv, 10, 64); err != nil {
			return unnamed(err)
		}
		return apierrors.NewConflict(op.endpoint.resource, op.name, errModified)
	}
	return nil
}

// removedByUpdate reports whether the update removes the last finalizer of an object that is being
// deleted.
func (r *registry) removedByUpdate(obj, old runtime.Object) bool {
	meta, before := accessor(obj), accessor(old)
	if before.GetDeletionTimestamp() == nil || len(meta.GetFinalizers()) > 0 {
		return false
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		return len(ns.Spec.Finalizers) == 0
	}
	grace := before.GetDeletionGracePeriodSeconds()
	return len(before.GetFinalizers()) > 0 && (grace == nil || *grace == 0)
}

// commitRemoval deletes the object instead of storing its last state.
func (op *operation) commitRemoval(ctx context.Context, key string, c current, obj runtime.Object) (runtime.Object, *current, error) {
	if op.dryRun {
		return obj, nil, nil
	}
	revision, next, err := op.remove(ctx, key, c)
	if err != nil || next != nil {
		return nil, next, err
	}
	accessor(obj).SetResourceVersion(strconv.FormatInt(revision, 10))
	return obj, nil, nil
}

package verb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/store"
)

// errModified is the cause of a Conflict, in upstream's words, which clients show.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// changeFunc returns the wanted state of a stored object. old is shared and read-only. It is nil if
// the object does not exist; then the change creates it, if that is allowed. A change runs again on
// a newer state if the write conflicts with another.
type changeFunc func(ctx context.Context, old runtime.Object) (runtime.Object, error)

// Update writes the state that fn returns for the named object. created reports that the object did
// not exist before.
func (op *Operation) Update(ctx context.Context, allowCreate bool, fn changeFunc) (out runtime.Object, created bool, err error) {
	r := op.Endpoint.Registry
	key := r.Key(op.Namespace, op.Name)
	err = op.withRetries(ctx, key, func(c registry.StoredState, fresh bool) (next *registry.StoredState, err error) {
		if created = c.Obj == nil; !created {
			out, next, err = op.updateOnce(ctx, key, c, fresh, fn)
			return next, err
		}
		if !allowCreate {
			return nil, apierrors.NewNotFound(r.Resource, op.Name)
		}
		if out, err = op.createByUpdate(ctx, fn); apierrors.IsAlreadyExists(err) {
			c, _, err = r.Load(ctx, key, true)
			return &c, err
		}
		return nil, err
	})
	if err != nil {
		return nil, false, err
	}
	return out, created, nil
}

// withRetries calls once with the named object's state. It repeats the call with next, if once
// found that the object had changed, and with the newest state if once failed on a state that may
// have been stale. It does not repeat a write that may have been made.
func (op *Operation) withRetries(ctx context.Context, key string, once func(c registry.StoredState, fresh bool) (next *registry.StoredState, err error)) error {
	r := op.Endpoint.Registry
	c, fresh, err := r.Load(ctx, key, op.DryRun)
	if err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return wire.StoreError(err)
		}
		next, err := once(c, fresh)
		switch {
		case err == nil && next == nil:
			return nil
		case err == nil:
			c, fresh = *next, true
		case fresh && !errors.Is(err, errDependencyChanged), wire.Unconfirmed(err):
			return err
		default:
			newest, _, loadErr := r.Load(ctx, key, true)
			if loadErr != nil {
				return loadErr
			}
			if newest.Revision == c.Revision && !errors.Is(err, errDependencyChanged) {
				return err
			}
			c, fresh = newest, true
		}
	}
}

// createByUpdate creates the object of a PUT or an apply.
func (op *Operation) createByUpdate(ctx context.Context, fn changeFunc) (runtime.Object, error) {
	op.creates = true
	obj, err := fn(ctx, nil)
	if err != nil {
		return nil, err
	}
	meta := wire.Accessor(obj)
	if meta.GetUID() != "" && op.Verb != "patch" {
		return nil, op.uidMismatch(meta.GetUID(), "")
	}
	if rv := meta.GetResourceVersion(); rv != "" { // any number is allowed
		if _, err := strconv.ParseUint(rv, 10, 64); err != nil {
			return nil, wire.InternalServerError(err)
		}
	}
	if meta.GetUID() != "" {
		return nil, apierrors.NewConflict(op.Endpoint.Resource, op.Name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", meta.GetUID()))
	}
	if err := op.setNamespace(meta); err != nil {
		return nil, err
	}
	if err := op.Admit(ctx, op.Attributes(admission.Create, obj, nil)); err != nil {
		return nil, err
	}
	return op.createWithRetries(ctx, obj)
}

// authorizeCreate checks that the user may create the object that an update or a patch is about to
// create.
func (op *Operation) authorizeCreate(ctx context.Context) error {
	a := auth.Attributes{
		User: op.User, Verb: "create", Namespace: op.Namespace, Group: op.Endpoint.GVR.Group, Version: op.Endpoint.GVR.Version, Resource: op.Endpoint.GVR.Resource, Name: op.Name,
	}
	if op.Endpoint.Resource == (schema.GroupResource{Resource: "namespaces"}) {
		a.Namespace = op.Name // as in the request's path
	}
	decision, reason, err := op.Engine.Access.Authorizer().Authorize(ctx, a)
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
func (op *Operation) updateOnce(ctx context.Context, key string, c registry.StoredState, fresh bool, fn changeFunc) (out runtime.Object, next *registry.StoredState, err error) {
	r := op.Endpoint.Registry
	obj, err := fn(ctx, c.Obj)
	if err != nil {
		return nil, nil, err
	}
	t := op.newTxn()
	if err := op.prepareUpdate(ctx, t, obj, c); err != nil {
		return nil, nil, err
	}
	meta, old := wire.Accessor(obj), wire.Accessor(c.Obj)
	if r.RemovedByUpdate(obj, c.Obj) {
		return op.commitRemoval(ctx, key, c, obj)
	}
	registry.KeepManagedTimes(r, obj, c)
	stored, err := r.Codec.Encode(obj)
	if err != nil {
		return nil, nil, err
	}
	if bytes.Equal(stored, c.Stored) && !r.NeedsReencryption(ctx, key) {
		meta.SetResourceVersion(old.GetResourceVersion())
		next, err := op.newerState(ctx, key, c, fresh)
		if err == nil && next == nil {
			obj, err = r.DryRunForm(obj)
		}
		return obj, next, err
	}
	if op.DryRun {
		out, err := r.DryRunForm(obj)
		return out, nil, err
	}
	lease, err := r.Shared.Lease(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	t.Put(store.Condition{Key: key, ModRevision: c.Revision}, obj, stored, lease)
	op.beside.join(t)
	res, err := t.Commit(ctx)
	op.beside = op.beside.joined(t)
	if err == nil && !res.Succeeded && failpoint.Bug("conflict-overwritten") {
		t.Conditions = nil
		res, err = t.Commit(ctx)
	}
	if errors.Is(err, store.ErrLeaseNotFound) && r.Shared.Expired(r, lease) {
		return nil, nil, wire.TryAgain(err)
	}
	if err != nil {
		return nil, nil, err
	}
	if !res.Succeeded {
		next, err := op.conflictingState(t, res, key, c)
		return nil, next, err
	}
	r.Shared.Writes.Written(op.Subresource, c.Obj, obj)
	meta.SetResourceVersion(strconv.FormatInt(res.Revision, 10))
	r.WaitVisible(ctx, res.Revision)
	out, err = r.ReadForm(obj, t.Stored(), res.Revision)
	return out, nil, err
}

// newerState returns the newest state if a request that writes nothing was decided on a stale one:
// there is no transaction that would detect it.
func (op *Operation) newerState(ctx context.Context, key string, c registry.StoredState, fresh bool) (next *registry.StoredState, err error) {
	if fresh {
		return nil, nil
	}
	newest, _, err := op.Endpoint.Registry.Load(ctx, key, true)
	if err != nil || newest.Revision == c.Revision {
		return nil, err
	}
	return &newest, nil
}

// conflictingState returns the state that made the transaction fail.
func (op *Operation) conflictingState(t *registry.Transaction, res store.TxnResult, key string, c registry.StoredState) (*registry.StoredState, error) {
	for i, cond := range t.Conditions {
		if cond.Key != key {
			continue
		}
		found, err := op.Endpoint.FromStore(res.Current[i])
		if err != nil {
			return nil, err
		}
		if found.Revision == c.Revision {
			return nil, errDependencyChanged // another key changed, not this object
		}
		return &found, nil
	}
	return nil, errDependencyChanged
}

// prepareUpdate sets the fields that the server decides and validates the new state.
func (op *Operation) prepareUpdate(ctx context.Context, t *registry.Transaction, obj runtime.Object, c registry.StoredState) error {
	r := op.Endpoint.Registry
	if op.Raw {
		if r.Hooks.Update != nil {
			return r.Hooks.Update(ctx, t, obj, c.Obj)
		}
		return nil
	}
	meta, old := wire.Accessor(obj), wire.Accessor(c.Obj)
	if err := op.checkVersion(meta, old); err != nil {
		return err
	}
	if r.Kind.Namespaced && meta.GetNamespace() == "" {
		meta.SetNamespace(old.GetNamespace())
	}
	meta.SetGeneration(old.GetGeneration())
	if !op.DryRun { // selfLink is not stored; a dry run shows it as sent
		meta.SetSelfLink("")
	}
	if r.Strategy.SetTimes != nil {
		r.Strategy.SetTimes(obj, r.Shared.Now())
	}
	prepare, validate := op.UpdateRules()
	if prepare != nil {
		prepare(obj, c.Obj)
	}
	if stamp := op.Endpoint.Strategy.Stamp; stamp != nil {
		stamp(obj, c.Obj, op.Endpoint.Shared.Now())
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
	if r.Hooks.Update != nil {
		if err := r.Hooks.Update(ctx, t, obj, c.Obj); err != nil {
			return err
		}
	}
	a := op.Attributes(admission.Update, obj, c.Obj)
	errs, err := op.validateFields(ctx, a)
	if err != nil {
		return err
	}
	errs = append(errs, r.Strategy.ValidateMetaUpdate(meta, old, r.Kind.Namespaced, op.Subresource)...)
	if validate != nil {
		errs = append(errs, validate(obj, c.Obj)...)
	}
	if len(errs) > 0 {
		return api.Invalid(op.invalidKind(obj), meta.GetName(), errs)
	}
	if t.DryRunErr != nil {
		return t.DryRunErr
	}
	if op.Subresource == "scale" {
		if err := op.Endpoint.ScaleAttributes(a); err != nil {
			return err
		}
	}
	if err := op.ValidateAdmission(ctx, a); err != nil {
		return err
	}
	if r.Strategy.Warnings != nil && op.Subresource == "" {
		for _, w := range r.Strategy.Warnings(obj, c.Obj) {
			op.Warn(w)
		}
	}
	return nil
}

// UpdateRules returns the kind's rules for the object itself or for the subresource.
func (op *Operation) UpdateRules() (prepare func(obj, old runtime.Object), validate func(obj, old runtime.Object) field.ErrorList) {
	s := op.Endpoint.Strategy
	switch op.Subresource {
	case "", "scale":
		return s.PrepareUpdate, s.ValidateUpdate
	case "status":
		if s.PrepareStatus == nil {
			return registry.KeepAllButStatus, s.ValidateStatus
		}
		return s.PrepareStatus, s.ValidateStatus
	}
	u, ok := s.Subresource[op.Subresource]
	if !ok {
		u = strategy.UpdateStrategy{}
	}
	return u.Prepare, u.Validate
}

// checkVersion is the optimistic concurrency control: the writer must have seen the state that it
// replaces.
func (op *Operation) checkVersion(meta, old metav1.Object) error {
	rv := meta.GetResourceVersion()
	switch {
	case rv == "" || rv == "0":
		if op.Endpoint.Strategy.AllowUnconditionalUpdate {
			meta.SetResourceVersion(old.GetResourceVersion())
			return nil
		}
		kind := op.Endpoint.GVK.GroupKind()
		kind.Kind = op.Endpoint.GVR.Resource // as upstream names it here
		return api.Invalid(kind, op.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case rv != old.GetResourceVersion():
		if _, err := strconv.ParseUint(rv, 10, 64); err != nil {
			return wire.InternalServerError(err)
		}
		return apierrors.NewConflict(op.Endpoint.Resource, op.Name, errModified)
	}
	return nil
}

// commitRemoval deletes the object instead of storing its last state.
func (op *Operation) commitRemoval(ctx context.Context, key string, c registry.StoredState, obj runtime.Object) (runtime.Object, *registry.StoredState, error) {
	if op.DryRun {
		return obj, nil, nil
	}
	revision, next, err := op.remove(ctx, key, c)
	if err != nil || next != nil {
		return nil, next, err
	}
	wire.Accessor(obj).SetResourceVersion(strconv.FormatInt(revision, 10))
	return obj, nil, nil
}

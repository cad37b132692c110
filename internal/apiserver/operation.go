package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/trace"
)

// operation is one request, over HTTP or from a component of this process.
type operation struct {
	engine      *engine
	endpoint    *endpoint
	user        auth.User
	verb        string
	namespace   string
	name        string
	subresource string
	// gvk is the kind of the body: the endpoint's, or the subresource's own (Scale, Binding).
	gvk schema.GroupVersionKind
	// options are Create-, Update-, Patch- or DeleteOptions, for admission.
	options runtime.Object
	dryRun  bool
	// fieldManager becomes the owner of the fields that this write sets.
	fieldManager string
	// creates is set when a PUT or an apply creates its object. The user was authorized for the
	// update only, and must also be allowed to create.
	creates bool
	// applies is set for a server-side apply.
	applies bool
	// raw is set for the server's own writes, which skip the kind's update rules for users.
	raw bool
	// warn sends a Warning header; never nil.
	warn func(text string)
	// stopwatch measures the time spent in webhooks.
	stopwatch admission.Stopwatch
}

// attributes describes the operation to admission.
func (op *operation) attributes(what admission.Operation, obj, old runtime.Object) *admission.Attributes {
	a := &admission.Attributes{
		User: op.user, Operation: what, Verb: op.verb, Kind: op.gvk, Resource: op.endpoint.gvr, Subresource: op.subresource,
		Namespace: op.namespace, Name: op.name, Object: obj, OldObject: old, Options: op.options, DryRun: op.dryRun,
		Warn: op.warn, Annotate: func(string, string) {}, Stopwatch: op.stopwatch,
	}
	if u, ok := op.options.(*metav1.UpdateOptions); ok && what == admission.Create {
		a.Options = &metav1.CreateOptions{DryRun: u.DryRun, FieldManager: u.FieldManager, FieldValidation: u.FieldValidation}
	}
	if op.endpoint.resource == (schema.GroupResource{Resource: "namespaces"}) {
		a.Namespace = op.name // as in the request's path
	}
	return a
}

// admit runs the mutating plugins. A plugin may add fields that a custom object's schema lacks, so
// the object is pruned again.
func (op *operation) admit(ctx context.Context, a *admission.Attributes) error {
	if err := op.mutate(ctx, a); err != nil {
		return err
	}
	if u, ok := a.Object.(*unstructured.Unstructured); ok && op.takesCustom() {
		return op.endpoint.custom.Prune(u)
	}
	return nil
}

// observed connects admission to the request's audit record, which may be nil.
func observed(ctx context.Context, a *admission.Attributes) {
	rec := audit.From(ctx)
	a.Annotate = rec.Annotate
	if rec.WantsRequest() {
		a.AnnotateRequest = rec.Annotate
	}
	if a.Stopwatch == nil {
		a.Stopwatch = rec
	}
}

// mutate runs the mutating plugins. If they leave invalid managedFields, the old managedFields are
// restored.
func (op *operation) mutate(ctx context.Context, a *admission.Attributes) error {
	observed(ctx, a)
	acc, err := meta.Accessor(a.Object)
	if err != nil {
		// The object has no metadata: it is nil, or options of a connection.
		return op.forbidden(op.engine.access.Admission().Admit(ctx, a))
	}
	before := acc.GetManagedFields()
	ctx, span := trace.Start(ctx, "Mutating admission")
	err = op.forbidden(op.engine.access.Admission().Admit(ctx, a))
	span.End()
	if err != nil {
		return err
	}
	if err := op.keepNamespace(acc); err != nil {
		return err
	}
	op.dropDoubledOwners(acc, afterAdmission)
	if op.fieldManager == "" || slices.Equal(before, acc.GetManagedFields()) {
		return nil // the same slice, not equal copies: no plugin has touched it
	}
	if err := managedfields.ValidateManagedFields(acc.GetManagedFields()); err != nil {
		op.warn(".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: " + err.Error())
		acc.SetManagedFields(before)
	}
	return nil
}

// keepNamespace prevents admission from moving an object to another namespace or out of its
// namespace.
func (op *operation) keepNamespace(acc metav1.Object) error {
	switch ns := acc.GetNamespace(); {
	case !op.endpoint.kind.Namespaced || ns == op.namespace:
		return nil
	case ns != "":
		return errOtherNamespace
	case op.subresource == "" && !op.endpoint.kind.Virtual:
		acc.SetNamespace(op.namespace)
	}
	return nil
}

func (op *operation) validateAdmission(ctx context.Context, a *admission.Attributes) error {
	observed(ctx, a)
	ctx, span := trace.Start(ctx, "Validating admission")
	defer span.End()
	return op.forbidden(op.engine.access.Admission().Validate(ctx, a))
}

// validateFields returns the field errors of the kind's hook, which the strategy does not find.
func (op *operation) validateFields(ctx context.Context, a *admission.Attributes) (field.ErrorList, error) {
	check := op.endpoint.hooks.fields
	if check == nil {
		return nil, nil
	}
	errs, err := check(ctx, a)
	return errs, op.forbidden(err)
}

// forbidden turns an admission error that is no Status into Forbidden, as upstream does.
func (op *operation) forbidden(err error) error {
	if err == nil || isStatus(err) {
		return err
	}
	return apierrors.NewForbidden(op.endpoint.resource, op.name, err)
}

func isStatus(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s)
}

// txn is the transaction that a write builds: the object itself and the additions of hooks.
type txn struct {
	of *registry // the kind of the object
	at *place    // where all that it writes lies
	// dryRun transactions are built and not committed.
	dryRun bool
	// keepsOwners is for a write that fails rather than lose managedFields: a server-side apply.
	keepsOwners bool
	// refresh brings up to date what hooks made further conditions from; nil if there are none.
	refresh    func(ctx context.Context, revision int64)
	conditions []store.Condition
	ops        []store.Op
	// stores is the object that the last operation writes; nil if the transaction removes it.
	stores runtime.Object
	// onFailure runs when the transaction is not committed, to release allocations.
	onFailure []func()
	// late is an error that a dry run reports only if there is no other.
	late error
}

// newTxn begins the transaction of a write.
func (op *operation) newTxn() *txn {
	return &txn{of: op.endpoint.registry, at: op.endpoint.at, dryRun: op.dryRun, keepsOwners: op.applies}
}

func (t *txn) add(c store.Condition, op store.Op) {
	t.conditions = append(t.conditions, c)
	t.ops = append(t.ops, op)
}

func (t *txn) fail() {
	for _, fn := range t.onFailure {
		fn()
	}
	t.onFailure = nil
}

// commit applies the transaction. res.Succeeded is false if a condition did not hold.
func (t *txn) commit(ctx context.Context) (res store.TxnResult, err error) {
	res, err = t.at.store.Commit(ctx, t.conditions, t.ops...)
	if errors.Is(err, store.ErrTooLarge) && t.forgetOwners() {
		res, err = t.at.store.Commit(ctx, t.conditions, t.ops...)
	}
	if err != nil {
		t.fail()
		return res, storeError(err)
	}
	if !res.Succeeded {
		t.fail()
		if t.refresh != nil && len(t.conditions) > 1 {
			t.refresh(ctx, res.Revision) // before the write is tried again
		}
	}
	return res, nil
}

// put adds the object to the transaction.
func (t *txn) put(c store.Condition, obj runtime.Object, stored []byte, lease store.LeaseID) {
	t.add(c, store.Op{Key: c.Key, Value: stored, Lease: lease})
	t.stores = obj
}

// forgetOwners shrinks an object that is too large for the store by dropping its managedFields,
// which the writer did not send and which can be larger than the fields themselves if names are
// long. It reports whether there was anything to drop. An apply depends on managedFields and is
// refused instead.
func (t *txn) forgetOwners() bool {
	if t.stores == nil || t.keepsOwners || len(accessor(t.stores).GetManagedFields()) == 0 {
		return false
	}
	accessor(t.stores).SetManagedFields(nil)
	stored, err := t.of.codec.encode(t.stores)
	if err != nil {
		return false
	}
	t.ops[len(t.ops)-1].Value = stored
	return true
}

// stored returns the bytes of the object that the transaction writes.
func (t *txn) stored() []byte { return t.ops[len(t.ops)-1].Value }

// current is the state of an object that a write starts from.
type current struct {
	obj      runtime.Object // shared, read-only; nil if the object does not exist
	stored   []byte
	revision int64
}

// load returns the object's state from the cache, which may be stale, or from the store if fresh is
// set or the cache does not have it.
func (r *registry) load(ctx context.Context, key string, fresh bool) (c current, isFresh bool, err error) {
	if !fresh {
		if reader := r.started(); reader != nil {
			if e, ok := reader.Snapshot().Get(key); ok && len(e.Stored()) > 0 {
				obj, err := r.objectOf(e)
				if err != nil {
					return current{}, false, r.undecrypted(ctx, key, e.Stored(), r.unreadable(key, err))
				}
				return current{obj: obj, stored: e.Stored(), revision: e.Revision}, false, nil
			}
		}
	}
	kv, _, err := r.at.store.Get(ctx, key, 0)
	if err != nil {
		return current{}, true, storeError(err)
	}
	since := time.Now()
	if c, err = r.fromStore(kv); err != nil {
		err = r.undecrypted(ctx, key, kv.Value, err)
	}
	audit.From(ctx).Spent(audit.Decode, time.Since(since))
	return c, true, err
}

// fromStore decodes a value that a Get or a failed transaction returned.
func (r *registry) fromStore(kv *store.KeyValue) (current, error) {
	if kv == nil {
		return current{}, nil
	}
	obj, err := r.decode(kv.Value, kv.ModRevision)
	if err != nil {
		return current{}, r.unreadable(kv.Key, err)
	}
	return current{obj: obj, stored: kv.Value, revision: kv.ModRevision}, nil
}

// unreadable adds the object's key to a decoding error. A conversion webhook's error already
// describes the object.
func (r *registry) unreadable(key string, err error) error {
	if r.custom != nil {
		return err
	}
	return fmt.Errorf("%s: %w", key, err)
}

// settle waits until the kind's cache has the write, so that all readers see it.
func (r *registry) settle(ctx context.Context, revision int64) {
	reader := r.started()
	if reader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := reader.WaitFor(ctx, revision); err != nil {
		// The write is committed all the same; readers see it a little later.
		r.shared.log.Warn("the cache did not reach a write in time", "resource", r.resource.String(), "revision", revision, "err", err)
	}
}

// storeError translates an error of the store into an answer for clients.
func storeError(err error) error {
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return apierrors.NewServiceUnavailable(err.Error())
	// ErrFuture: the deadline passed, too
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, cache.ErrFuture):
		return apierrors.NewTimeoutError("request did not complete within requested timeout - context deadline exceeded", 0)
	case errors.Is(err, store.ErrCompacted):
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	case errors.Is(err, store.ErrTooLarge):
		return unnamed(store.ErrTooLarge) // without the key, as upstream
	}
	return err
}

// stale reports whether an unchanged object must be written again because the store would now
// encrypt it with another key.
func (r *registry) stale(ctx context.Context, key string) bool {
	sealed, ok := r.at.given.(interface {
		Stale(ctx context.Context, key string) (bool, error)
	})
	if !ok {
		return false
	}
	stale, err := sealed.Stale(ctx, key)
	if err != nil {
		r.shared.log.Warn("whether an object is encrypted as it should be is not known; it stays as it is", "key", key, "err", err)
	}
	return stale && err == nil
}

// undecrypted explains a read error. If the stored value could not be decrypted, it says so;
// otherwise it returns err.
func (r *registry) undecrypted(ctx context.Context, key string, stored []byte, err error) error {
	if why := r.whySealed(ctx, key, stored); why != nil {
		return apierrors.NewInternalError(why)
	}
	return err
}

// undecryptedAmong is undecrypted for a list. It names the first entry that could not be decrypted.
func (r *registry) undecryptedAmong(ctx context.Context, entries []*cache.Entry, err error) error {
	for _, e := range entries {
		if why := r.whySealed(ctx, e.Key, e.Stored()); why != nil {
			return apierrors.NewInternalError(fmt.Errorf("unable to transform key %q: %w", store.Stored(r.at.store, e.Key), why))
		}
	}
	return err
}

// whySealed returns why a stored value cannot be decrypted; nil if it can, or is not encrypted.
func (r *registry) whySealed(ctx context.Context, key string, stored []byte) error {
	if sealed, ok := r.at.given.(interface {
		Sealed(ctx context.Context, key string, value []byte) error
	}); ok {
		return sealed.Sealed(ctx, key, stored)
	}
	return nil
}

// sealedStore is a store that encrypts some objects (package encryption).
type sealedStore interface {
	// Health reports whether the key management services work.
	Health(ctx context.Context) error
	// OnRepair sets the function to call when the objects below a prefix have become readable
	// again.
	OnRepair(again func(ctx context.Context, prefix string) error)
	Collectors() []prometheus.Collector
}

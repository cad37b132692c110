package verb

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/store"
)

const (
	// A generated name has at most 63 characters: the prefix is cut to leave room for five random
	// ones.
	maxGeneratedNameBase = 58
	generatedSuffix      = 5
	// generateNameAttempts is how many generated names are tried if they are taken.
	generateNameAttempts = 8
)

// create stores a new object; obj is a hub object that the operation may change.
func (op *Operation) create(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	obj, err := op.admitNew(ctx, obj)
	if err != nil {
		return nil, err
	}
	meta := wire.Accessor(obj)
	if meta.GetName() != "" || meta.GetGenerateName() == "" {
		return op.createWithRetries(ctx, obj)
	}
	for attempt := 1; ; attempt++ {
		candidate := obj.DeepCopyObject()
		wire.Accessor(candidate).SetName(generateName(meta.GetGenerateName()))
		out, err := op.createWithRetries(ctx, candidate)
		if err == nil || !apierrors.IsAlreadyExists(err) {
			return out, err
		}
		if attempt == generateNameAttempts {
			return nil, apierrors.NewGenerateNameConflict(op.Endpoint.Resource, wire.Accessor(candidate).GetName(), 1)
		}
	}
}

// admitNew completes a new object and runs the mutating plugins.
func (op *Operation) admitNew(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	meta := wire.Accessor(obj)
	if err := op.setNamespace(meta); err != nil {
		return nil, err
	}
	if op.Name == "" {
		op.Name = meta.GetName()
	}
	// Fields that only the server sets have no field manager.
	meta.SetDeletionTimestamp(nil)
	meta.SetDeletionGracePeriodSeconds(nil)
	obj = op.TrackFields(nil, obj)
	return obj, op.Admit(ctx, op.Attributes(admission.Create, obj, nil))
}

func generateName(base string) string {
	if len(base) > maxGeneratedNameBase {
		base = base[:maxGeneratedNameBase]
	}
	return base + utilrand.String(generatedSuffix)
}

// setNamespace sets the object's namespace to the request's.
func (op *Operation) setNamespace(meta metav1.Object) error {
	if !op.Endpoint.Kind.Namespaced {
		meta.SetNamespace("")
		return nil
	}
	switch {
	case op.Namespace == "":
		return apierrors.NewBadRequest("an empty namespace may not be set during creation")
	case meta.GetNamespace() == "":
		meta.SetNamespace(op.Namespace)
	case meta.GetNamespace() != op.Namespace:
		return wire.ErrNamespaceMismatch
	}
	return nil
}

// createWithRetries repeats the create while its other dependencies (addresses, ports) change
// concurrently.
func (op *Operation) createWithRetries(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	if op.Endpoint.Hooks.Create == nil {
		return op.createOnce(ctx, obj)
	}
	op.charged = map[types.UID]bool{}
	for {
		out, err := op.createOnce(ctx, obj.DeepCopyObject())
		if !errors.Is(err, errDependencyChanged) {
			return out, err
		}
		if err := ctx.Err(); err != nil {
			return nil, wire.StoreError(err)
		}
	}
}

// createOnce prepares, validates and commits one candidate.
func (op *Operation) createOnce(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	meta := wire.Accessor(obj)
	r := op.Endpoint.Registry
	t := op.newTxn()
	if err := op.PrepareCreate(ctx, t, obj); err != nil {
		return nil, err
	}
	key := r.Key(meta.GetNamespace(), meta.GetName())
	if op.DryRun {
		c, _, err := r.Load(ctx, key, true)
		if err != nil {
			return nil, err
		}
		if c.Obj != nil {
			return nil, op.alreadyExists(meta.GetName(), c.Obj)
		}
		return r.DryRunForm(obj)
	}
	if version, err := strconv.ParseUint(meta.GetResourceVersion(), 10, 64); err == nil && version != 0 && op.Verb == "create" {
		return nil, wire.InternalServerError(errResourceVersionOnCreate)
	}
	lease, err := op.put(ctx, t, key, obj)
	if err != nil {
		return nil, err
	}
	res, err := t.Commit(ctx)
	if errors.Is(err, store.ErrLeaseNotFound) && r.Shared.Expired(r, lease) {
		return nil, wire.TryAgain(err)
	}
	if err != nil {
		return nil, err
	}
	if !res.Succeeded {
		return nil, op.explainFailedCreate(t, res, key)
	}
	meta.SetResourceVersion(strconv.FormatInt(res.Revision, 10))
	r.WaitVisible(ctx, res.Revision)
	return r.ReadForm(obj, t.Stored(), res.Revision)
}

// put adds a prepared new object to the transaction.
func (op *Operation) put(ctx context.Context, t *registry.Transaction, key string, obj runtime.Object) (store.LeaseID, error) {
	r, meta := op.Endpoint.Registry, wire.Accessor(obj)
	meta.SetResourceVersion("")
	stored, err := r.Codec.Encode(obj)
	if err != nil {
		return 0, err
	}
	lease, err := r.Shared.Lease(ctx, r)
	if err != nil {
		return 0, err
	}
	t.Put(store.Condition{Key: key}, obj, stored, lease)
	op.guard(t, meta.GetNamespace(), obj)
	return lease, nil
}

// explainFailedCreate explains a failed condition of a create: the object exists, or a hook's
// allocation was taken.
func (op *Operation) explainFailedCreate(t *registry.Transaction, res store.TxnResult, key string) error {
	for i, c := range t.Conditions {
		if c.Key != key || res.Current[i] == nil {
			continue
		}
		existing, err := op.Endpoint.FromStore(res.Current[i])
		if err != nil {
			return err
		}
		_, name := op.Endpoint.Names(key)
		return op.alreadyExists(name, existing.Obj)
	}
	return errDependencyChanged
}

// errResourceVersionOnCreate refuses a resourceVersion on a create: a new object has none yet.
var errResourceVersionOnCreate = errors.New("resourceVersion should not be set on objects to be created")

// errDependencyChanged reports a concurrent change of something that a write depends on besides its
// object.
var errDependencyChanged = errors.New("objects that the write depends on have changed")

func (op *Operation) alreadyExists(name string, existing runtime.Object) error {
	err := apierrors.NewAlreadyExists(op.Endpoint.Resource, name)
	if wire.Accessor(existing).GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = fmt.Sprintf("object is being deleted: %s", err.ErrStatus.Message)
	}
	return err
}

// invalidKind returns the kind to name in an Invalid error. Events are always of the core group.
func (op *Operation) invalidKind(obj runtime.Object) schema.GroupKind {
	if op.Endpoint.Custom != nil {
		return obj.GetObjectKind().GroupVersionKind().GroupKind() // as the object names itself
	}
	kind := op.Endpoint.GVK.GroupKind()
	if alias := op.Endpoint.Kind.Alias; alias != (schema.GroupResource{}) {
		kind.Group = alias.Group
	}
	return kind
}

// PrepareCreate sets the fields that the server decides and validates the object.
func (op *Operation) PrepareCreate(ctx context.Context, t *registry.Transaction, obj runtime.Object) error {
	r, meta := op.Endpoint.Registry, wire.Accessor(obj)
	// selfLink is not stored; a dry run of an update or an apply shows it as sent
	if !op.DryRun || !op.creates {
		meta.SetSelfLink("")
	}
	meta.SetCreationTimestamp(r.Shared.Now())
	meta.SetUID(types.UID(uuid.NewString()))
	if r.Strategy.WarningsAsSent != nil {
		for _, w := range r.Strategy.WarningsAsSent(obj) {
			op.Warn(w)
		}
	}
	if r.Strategy.SetTimes != nil {
		r.Strategy.SetTimes(obj, r.Shared.Now())
	}
	if r.Strategy.PrepareCreate != nil {
		r.Strategy.PrepareCreate(obj)
	}
	if r.Hooks.Create != nil {
		if err := r.Hooks.Create(ctx, t, obj); err != nil {
			return err
		}
	}
	if r.Strategy.SetRequester != nil {
		r.Strategy.SetRequester(obj, auth.UserInfo(op.User))
	}
	a := op.Attributes(admission.Create, obj, nil)
	a.Name = meta.GetName()
	errs, err := op.validateFields(ctx, a)
	if err != nil {
		return err
	}
	if errs = append(errs, r.Strategy.ValidateNew(obj, r.Kind.Namespaced)...); len(errs) > 0 {
		return api.Invalid(op.invalidKind(obj), meta.GetName(), errs)
	}
	if t.DryRunErr != nil {
		return t.DryRunErr
	}
	if op.creates {
		if err := op.authorizeCreate(ctx); err != nil {
			return err
		}
	}
	if err := op.ValidateAdmission(ctx, a); err != nil {
		return err
	}
	if r.Strategy.Warnings != nil {
		for _, w := range r.Strategy.Warnings(obj, nil) {
			op.Warn(w)
		}
	}
	return nil
}

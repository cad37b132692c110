package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
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
func (op *operation) create(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	meta := accessor(obj)
	if err := op.takeNamespace(meta); err != nil {
		return nil, err
	}
	if op.name == "" {
		op.name = meta.GetName()
	}
	// Fields that only the server sets have no field manager.
	meta.SetDeletionTimestamp(nil)
	meta.SetDeletionGracePeriodSeconds(nil)
	obj = op.trackFields(op.endpoint.newObject(), obj)
	if err := op.admit(ctx, op.attributes(admission.Create, obj, nil)); err != nil {
		return nil, err
	}
	if meta.GetName() != "" || meta.GetGenerateName() == "" {
		return op.createAgain(ctx, obj)
	}
	for attempt := 1; ; attempt++ {
		candidate := obj.DeepCopyObject()
		accessor(candidate).SetName(generateName(meta.GetGenerateName()))
		out, err := op.createAgain(ctx, candidate)
		if err == nil || !apierrors.IsAlreadyExists(err) {
			return out, err
		}
		if attempt == generateNameAttempts {
			return nil, apierrors.NewGenerateNameConflict(op.endpoint.resource, accessor(candidate).GetName(), 1)
		}
	}
}

func generateName(base string) string {
	if len(base) > maxGeneratedNameBase {
		base = base[:maxGeneratedNameBase]
	}
	return base + utilrand.String(generatedSuffix)
}

// takeNamespace sets the object's namespace to the request's.
func (op *operation) takeNamespace(meta metav1.Object) error {
	if !op.endpoint.kind.Namespaced {
		meta.SetNamespace("")
		return nil
	}
	switch {
	case op.namespace == "":
		return apierrors.NewBadRequest("an empty namespace may not be set during creation")
	case meta.GetNamespace() == "":
		meta.SetNamespace(op.namespace)
	case meta.GetNamespace() != op.namespace:
		return errOtherNamespace
	}
	return nil
}

// createAgain repeats the create while its other dependencies (addresses, ports) change
// concurrently.
func (op *operation) createAgain(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	if op.endpoint.hooks.create == nil {
		return op.createOnce(ctx, obj)
	}
	for {
		out, err := op.createOnce(ctx, obj.DeepCopyObject())
		if !errors.Is(err, errRetry) {
			return out, err
		}
		if err := ctx.Err(); err != nil {
			return nil, storeError(err)
		}
	}
}

// createOnce prepares, validates and commits one candidate.
func (op *operation) createOnce(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	meta := accessor(obj)
	r := op.endpoint.registry
	t := op.newTxn()
	if err := op.prepareCreate(ctx, t, obj); err != nil {
		t.fail()
		return nil, err
	}
	key := r.key(meta.GetNamespace(), meta.GetName())
	if op.dryRun {
		t.fail()
		c, _, err := r.load(ctx, key, true)
		if err != nil {
			return nil, err
		}
		if c.obj != nil {
			return nil, op.alreadyExists(meta.GetName(), c.obj)
		}
		return r.asStored(obj)
	}
	if version, err := strconv.ParseUint(meta.GetResourceVersion(), 10, 64); err == nil && version != 0 && op.verb == "create" {
		t.fail()
		return nil, unnamed(errNewRevision)
	}
	meta.SetResourceVersion("")
	stored, err := r.codec.encode(obj)
	if err != nil {
		t.fail()
		return nil, err
	}
	lease, err := r.shared.lease(ctx, r)
	if err != nil {
		t.fail()
		return nil, err
	}
	t.put(store.Condition{Key: key}, obj, stored, lease)
	res, err := t.commit(ctx)
	if err != nil {
		return nil, err
	}
	if !res.Succeeded {
		return nil, op.createRefused(t, res, key)
	}
	meta.SetResourceVersion(strconv.FormatInt(res.Revision, 10))
	r.settle(ctx, res.Revision)
	return r.asRead(obj, t.stored(), res.Revision)
}

// createRefused explains a failed condition of a create: the object exists, or a hook's allocation
// was taken.
func (op *operation) createRefused(t *txn, res store.TxnResult, key string) error {
	for i, c := range t.conditions {
		if c.Key != key || res.Current[i] == nil {
			continue
		}
		existing, err := op.endpoint.fromStore(res.Current[i])
		if err != nil {
			return err
		}
		_, name := op.endpoint.names(key)
		return op.alreadyExists(name, existing.obj)
	}
	return errRetry
}

// errNewRevision refuses a resourceVersion on a create: a new object has none yet.
var errNewRevision = errors.New("resourceVersion should not be set on objects to be created")

// errRetry reports a concurrent change of something that a write depends on besides its object.
var errRetry = errors.New("the objects that the write depends on changed meanwhile")

func (op *operation) alreadyExists(name string, existing runtime.Object) error {
	err := apierrors.NewAlreadyExists(op.endpoint.resource, name)
	if accessor(existing).GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = fmt.Sprintf("object is being deleted: %s", err.ErrStatus.Message)
	}
	return err
}

// stampRequester records the user who requests the certificate, whatever the request itself claims
// (API reference, CertificateSigningRequestSpec).
func stampRequester(csr *certificatesv1.CertificateSigningRequest, user auth.User) {
	csr.Spec.Username, csr.Spec.UID, csr.Spec.Groups, csr.Spec.Extra = user.Name, user.UID, user.Groups, nil
	for key, values := range user.Extra {
		if csr.Spec.Extra == nil {
			csr.Spec.Extra = make(map[string]certificatesv1.ExtraValue, len(user.Extra))
		}
		csr.Spec.Extra[key] = values
	}
}

// invalidKind returns the kind to name in an Invalid error. Events are always of the core group.
func (op *operation) invalidKind(obj runtime.Object) schema.GroupKind {
	if op.endpoint.custom != nil {
		return obj.GetObjectKind().GroupVersionKind().GroupKind() // as the object names itself
	}
	kind := op.endpoint.gvk.GroupKind()
	if alias := op.endpoint.kind.Alias; alias != (schema.GroupResource{}) {
		kind.Group = alias.Group
	}
	return kind
}

// prepareCreate sets the fields that the server decides and validates the object.
func (op *operation) prepareCreate(ctx context.Context, t *txn, obj runtime.Object) error {
	r, meta := op.endpoint.registry, accessor(obj)
	// selfLink is not stored; a dry run of an update or an apply shows it as sent
	if !op.dryRun || !op.creates {
		meta.SetSelfLink("")
	}
	meta.SetCreationTimestamp(r.shared.now())
	meta.SetUID(types.UID(uuid.NewString()))
	if r.strategy.WarningsAsSent != nil {
		for _, w := range r.strategy.WarningsAsSent(obj) {
			op.warn(w)
		}
	}
	if r.hooks.stamp != nil {
		r.hooks.stamp(obj, r.shared.now())
	}
	if r.strategy.PrepareCreate != nil {
		r.strategy.PrepareCreate(obj)
	}
	if r.hooks.create != nil {
		if err := r.hooks.create(ctx, t, obj); err != nil {
			return err
		}
	}
	if csr, ok := obj.(*certificatesv1.CertificateSigningRequest); ok {
		stampRequester(csr, op.user)
	}
	a := op.attributes(admission.Create, obj, nil)
	a.Name = meta.GetName()
	errs, err := op.validateFields(ctx, a)
	if err != nil {
		return err
	}
	if errs = append(errs, r.strategy.ValidateNew(obj, r.kind.Namespaced)...); len(errs) > 0 {
		return api.Invalid(op.invalidKind(obj), meta.GetName(), errs)
	}
	if t.late != nil {
		return t.late
	}
	if op.creates {
		if err := op.authorizeCreate(ctx); err != nil {
			return err
		}
	}
	if err := op.validateAdmission(ctx, a); err != nil {
		return err
	}
	if r.strategy.Warnings != nil {
		for _, w := range r.strategy.Warnings(obj, nil) {
			op.warn(w)
		}
	}
	return nil
}

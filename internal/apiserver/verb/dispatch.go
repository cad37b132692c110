package verb

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/store"
)

// CreateAny creates an object in the endpoint's version, or posts it to a subresource or a virtual
// kind.
func (op *Operation) CreateAny(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	if out, handled, err := op.virtualCreate(ctx, obj); handled {
		return out, err
	}
	hub, err := op.Endpoint.ToHub(obj)
	if err != nil {
		return nil, err
	}
	return op.create(ctx, hub)
}

// ReplaceAny is PUT: the object in the endpoint's version replaces the stored one, or the
// subresource's part of it.
func (op *Operation) ReplaceAny(ctx context.Context, obj runtime.Object) (runtime.Object, bool, error) {
	if op.Subresource == "scale" {
		out, err := op.replaceScale(ctx, obj)
		return out, false, err
	}
	if err := op.checkNames(wire.Accessor(obj)); err != nil {
		return nil, false, err
	}
	hub, err := op.Endpoint.ToHub(obj)
	if err != nil {
		return nil, false, err
	}
	return op.replace(ctx, hub)
}

// checkNames compares the body's name and namespace with the path's.
func (op *Operation) checkNames(meta metav1.Object) error {
	if name := meta.GetName(); name != op.Name {
		if name == "" {
			return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", op.Name))
		}
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, op.Name))
	}
	if !op.Endpoint.Kind.Namespaced {
		meta.SetNamespace("") // whatever the body has
		return nil
	}
	if ns := meta.GetNamespace(); ns != "" && ns != op.Namespace {
		return wire.ErrNamespaceMismatch
	}
	return nil
}

func (op *Operation) replace(ctx context.Context, hub runtime.Object) (runtime.Object, bool, error) {
	allowCreate := op.Endpoint.Strategy.AllowCreateOnUpdate && op.Subresource == ""
	return op.Update(ctx, allowCreate, func(ctx context.Context, old runtime.Object) (runtime.Object, error) {
		obj := hub.DeepCopyObject()
		if old == nil {
			obj = op.TrackFields(nil, obj)
			return obj, nil
		}
		if err := op.checkUID(wire.Accessor(obj), wire.Accessor(old)); err != nil {
			return nil, err
		}
		if op.Endpoint.Kind.Namespaced {
			wire.Accessor(obj).SetNamespace(op.Namespace)
		}
		obj = op.TrackFields(old, obj)
		return obj, op.Admit(ctx, op.Attributes(admission.Update, obj, old))
	})
}

// checkUID refuses a body with the UID of another object.
func (op *Operation) checkUID(meta, old metav1.Object) error {
	if uid := meta.GetUID(); uid != "" && uid != old.GetUID() {
		return op.uidMismatch(uid, old.GetUID())
	}
	return nil
}

// uidMismatch refuses a write with a UID that is not the object's; stored is empty if the object
// does not exist.
func (op *Operation) uidMismatch(uid, stored types.UID) error {
	key := op.Endpoint.Key(op.Namespace, op.Name)
	if op.DryRun {
		key = strings.TrimPrefix(key, "/registry") // upstream's dry-run storage has no prefix
	} else {
		key = store.Stored(op.Endpoint.Place.Raw, key)
	}
	return apierrors.NewConflict(op.Endpoint.Resource, op.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s",
		key, uid, stored))
}

// PatchAny patches an object or a subresource.
func (op *Operation) PatchAny(ctx context.Context, p PatchRequest) (runtime.Object, bool, error) {
	if op.Subresource == "scale" {
		out, err := op.patchScale(ctx, p)
		return out, false, err
	}
	return op.patch(ctx, p)
}

package apiserver

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/store"
)

// createAny creates an object in the endpoint's version, or posts it to a subresource or a virtual
// kind.
func (op *operation) createAny(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	if out, handled, err := op.virtualCreate(ctx, obj); handled {
		return out, err
	}
	hub, err := op.endpoint.toHub(obj)
	if err != nil {
		return nil, err
	}
	return op.create(ctx, hub)
}

// replaceAny is PUT: the object in the endpoint's version replaces the stored one, or the
// subresource's part of it.
func (op *operation) replaceAny(ctx context.Context, obj runtime.Object) (runtime.Object, bool, error) {
	if op.subresource == "scale" {
		out, err := op.replaceScale(ctx, obj)
		return out, false, err
	}
	if err := op.checkNames(accessor(obj)); err != nil {
		return nil, false, err
	}
	hub, err := op.endpoint.toHub(obj)
	if err != nil {
		return nil, false, err
	}
	return op.replace(ctx, hub)
}

// checkNames compares the body's name and namespace with the path's.
func (op *operation) checkNames(meta metav1.Object) error {
	if name := meta.GetName(); name != op.name {
		if name == "" {
			return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", op.name))
		}
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, op.name))
	}
	if !op.endpoint.kind.Namespaced {
		meta.SetNamespace("") // whatever the body has
		return nil
	}
	if ns := meta.GetNamespace(); ns != "" && ns != op.namespace {
		return errOtherNamespace
	}
	return nil
}

func (op *operation) replace(ctx context.Context, hub runtime.Object) (runtime.Object, bool, error) {
	allowCreate := op.endpoint.strategy.AllowCreateOnUpdate && op.subresource == ""
	return op.update(ctx, allowCreate, func(ctx context.Context, old runtime.Object) (runtime.Object, error) {
		obj := hub.DeepCopyObject()
		if old == nil {
			obj = op.trackFields(op.endpoint.newObject(), obj)
			return obj, nil
		}
		if err := op.checkUID(accessor(obj), accessor(old)); err != nil {
			return nil, err
		}
		if op.endpoint.kind.Namespaced {
			accessor(obj).SetNamespace(op.namespace)
		}
		obj = op.trackFields(old, obj)
		return obj, op.admit(ctx, op.attributes(admission.Update, obj, old))
	})
}

// checkUID refuses a body with the UID of another object.
func (op *operation) checkUID(meta, old metav1.Object) error {
	if uid := meta.GetUID(); uid != "" && uid != old.GetUID() {
		return op.anotherUID(uid, old.GetUID())
	}
	return nil
}

// anotherUID refuses a write with a UID that is not the object's; stored is empty if the object
// does not exist.
func (op *operation) anotherUID(uid, stored types.UID) error {
	key := op.endpoint.key(op.namespace, op.name)
	if op.dryRun {
		key = strings.TrimPrefix(key, "/registry") // upstream's dry-run storage has no prefix
	} else {
		key = store.Stored(op.endpoint.at.given, key)
	}
	return apierrors.NewConflict(op.endpoint.resource, op.name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s",
		key, uid, stored))
}

// patchAny patches an object or a subresource.
func (op *operation) patchAny(ctx context.Context, p patchRequest) (runtime.Object, bool, error) {
	if op.subresource == "scale" {
		out, err := op.patchScale(ctx, p)
		return out, false, err
	}
	return op.patch(ctx, p)
}

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/client"
)

const (
	byControllerUID = client.SharedIndex + "controller"
	byNamespaceFree = client.SharedIndex + "uncontrolled by namespace"
)

// IndexOwners indexes a View by the UID of each object's controller, and objects without one by
// namespace.
func IndexOwners[T client.Object](view client.ViewOf[T]) {
	view.AddIndex(byControllerUID, func(obj T) []string {
		if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
			return []string{string(ref.UID)}
		}
		return nil
	})
	view.AddIndex(byNamespaceFree, func(obj T) []string {
		if metav1.GetControllerOfNoCopy(obj) == nil {
			return []string{obj.GetNamespace()}
		}
		return nil
	})
}

// Controlled lists the objects that the owner with this UID controls.
func Controlled[T client.Object](view client.ViewOf[T], uid types.UID) []T {
	return view.ByIndex(byControllerUID, string(uid))
}

// Uncontrolled lists the objects of a namespace that have no controller.
func Uncontrolled[T client.Object](view client.ViewOf[T], namespace string) []T {
	return view.ByIndex(byNamespaceFree, namespace)
}

// Claimer determines the objects of an owner. It keeps the controlled objects that match the
// selector, adopts matching objects without a controller, and releases controlled objects that no
// longer match.
type Claimer[T client.Object] struct {
	Client   client.Interface
	View     client.ViewOf[T] // indexed by IndexOwners
	Owner    client.Object
	Kind     schema.GroupVersionKind // of Owner
	Selector labels.Selector
	// Adoptable restricts the orphans to adopt; nil adopts all that match.
	Adoptable func(T) bool
	// Matches restricts the controlled objects to keep; nil keeps all that match the selector.
	Matches func(T) bool
	// Finalizers are added on adoption.
	Finalizers []string
}

// Claim adopts and releases objects, and returns those that belong to the owner. An error concerns
// single objects; the returned objects are valid all the same.
func (c Claimer[T]) Claim(ctx context.Context) ([]T, error) {
	var claimed []T
	var errs []error
	for _, obj := range Controlled(c.View, c.Owner.GetUID()) {
		if c.match(obj) {
			claimed = append(claimed, obj)
			continue
		}
		if c.Owner.GetDeletionTimestamp() != nil {
			continue
		}
		if err := c.release(ctx, obj); err != nil {
			errs = append(errs, err)
		}
	}
	if c.Owner.GetDeletionTimestamp() != nil {
		return claimed, errors.Join(errs...)
	}
	checked := false
	for _, obj := range Uncontrolled(c.View, c.Owner.GetNamespace()) {
		if obj.GetDeletionTimestamp() != nil || !c.match(obj) || (c.Adoptable != nil && !c.Adoptable(obj)) {
			continue
		}
		if !checked {
			// The cached owner may be stale. To adopt for an owner that is being deleted would take
			// back its orphans.
			if err := c.ownerLives(ctx); err != nil {
				return claimed, errors.Join(append(errs, fmt.Errorf("cannot adopt %s/%s: %w", obj.GetNamespace(), obj.GetName(), err))...)
			}
			checked = true
		}
		adopted, err := c.adopt(ctx, obj)
		if err != nil {
			if !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
			continue
		}
		claimed = append(claimed, adopted)
	}
	return claimed, errors.Join(errs...)
}

func (c Claimer[T]) match(obj T) bool {
	if c.Matches != nil && !c.Matches(obj) {
		return false
	}
	return c.Selector.Matches(labels.Set(obj.GetLabels()))
}

func (c Claimer[T]) ownerLives(ctx context.Context) error {
	fresh, err := c.Client.Get(ctx, api.ResourceOf(c.Owner), c.Owner.GetNamespace(), c.Owner.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	m := fresh.(metav1.Object)
	if m.GetUID() != c.Owner.GetUID() {
		return fmt.Errorf("original %s %s/%s is gone: got uid %s, wanted %s", c.Kind.Kind, m.GetNamespace(), m.GetName(), m.GetUID(), c.Owner.GetUID())
	}
	if m.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s/%s has just been deleted at %v", m.GetNamespace(), m.GetName(), m.GetDeletionTimestamp())
	}
	return nil
}

func (c Claimer[T]) adopt(ctx context.Context, obj T) (T, error) {
	meta := map[string]any{"uid": obj.GetUID(), "ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(c.Owner, c.Kind)}}
	if len(c.Finalizers) > 0 {
		meta["finalizers"] = c.Finalizers
	}
	return c.patch(ctx, obj, meta)
}

func (c Claimer[T]) release(ctx context.Context, obj T) error {
	meta := map[string]any{"uid": obj.GetUID(), "ownerReferences": []map[string]any{{"$patch": "delete", "uid": c.Owner.GetUID()}}}
	if len(c.Finalizers) > 0 {
		meta["$deleteFromPrimitiveList/finalizers"] = c.Finalizers
	}
	_, err := c.patch(ctx, obj, meta)
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		// The object is gone, was replaced by another of the same name, or has lost its controller.
		return nil
	}
	return err
}

func (c Claimer[T]) patch(ctx context.Context, obj T, metadata map[string]any) (T, error) {
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return obj, err
	}
	return client.Patch[T](ctx, c.Client, obj.GetNamespace(), obj.GetName(), types.StrategicMergePatchType, data)
}

// OwnerKeys returns the key of the object's controller if that is of the kind.
func OwnerKeys(obj metav1.Object, kind schema.GroupVersionKind) []Key {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != kind.Kind {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || gv.Group != kind.Group {
		return nil
	}
	return []Key{{Namespace: obj.GetNamespace(), Name: ref.Name}}
}

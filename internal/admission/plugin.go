package admission

import (
	"cmp"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// base holds a plugin's name and the operations it handles.
type base struct {
	name       string
	operations []Operation
}

// Name implements Plugin.
func (b base) Name() string { return b.name }

// Handles implements Plugin.
func (b base) Handles(o Operation) bool { return slices.Contains(b.operations, o) }

// is reports whether the write concerns the resource or, with a subresource, that subresource.
func (a *Attributes) is(group, resource, subresource string) bool {
	return a.Resource.Group == group && a.Resource.Resource == resource && a.Subresource == subresource
}

// updated returns the objects before and after an update of the subresource; false for any other
// write.
func updated[T runtime.Object](a *Attributes, group, resource, subresource string) (old, changed T, ok bool) {
	old, before := a.OldObject.(T)
	changed, after := a.Object.(T)
	return old, changed, before && after && a.is(group, resource, subresource)
}

// pod returns the pod of a create or update of pods themselves.
func (a *Attributes) pod() (*corev1.Pod, bool) {
	if !a.is("", "pods", "") {
		return nil, false
	}
	pod, ok := a.Object.(*corev1.Pod)
	return pod, ok
}

// objectName returns the object's name, which only the object has in a create.
func (a *Attributes) objectName() string {
	if a.Name != "" || a.Object == nil {
		return a.Name
	}
	if m, err := meta.Accessor(a.Object); err == nil {
		if m.GetName() != "" {
			return m.GetName()
		}
		return m.GetGenerateName()
	}
	return ""
}

func (a *Attributes) groupResource() schema.GroupResource { return a.Resource.GroupResource() }

// forbid returns a Forbidden StatusError about the write's object.
func (a *Attributes) forbid(err error) error {
	if apierrors.IsForbidden(err) {
		return err
	}
	return a.Forbidden(err)
}

// Forbidden returns a Forbidden StatusError. As upstream, objects of a deleted collection are named
// "Unknown".
func (a *Attributes) Forbidden(err error) *apierrors.StatusError {
	return apierrors.NewForbidden(a.groupResource(), cmp.Or(a.objectName(), "Unknown"), err)
}

// internalServerError returns err as an internal server error with the same text. Some of
// upstream's plugins answer so instead of with Forbidden.
func internalServerError(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}

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

// base is the name of a plugin and the operations it handles.
type base struct {
	name       string
	operations []Operation
}

// Name implements Plugin.
func (b base) Name() string { return b.name }

// Handles implements Plugin.
func (b base) Handles(o Operation) bool { return slices.Contains(b.operations, o) }

// is says whether the write is to the resource itself or, for "pods/resize", to its subresource.
func (a *Attributes) is(group, resource, subresource string) bool {
	return a.Resource.Group == group && a.Resource.Resource == resource && a.Subresource == subresource
}

// updated is an object before and after an update of the subresource; false for any other write.
func updated[T runtime.Object](a *Attributes, group, resource, subresource string) (old, changed T, ok bool) {
	old, before := a.OldObject.(T)
	changed, after := a.Object.(T)
	return old, changed, before && after && a.is(group, resource, subresource)
}

// pod is the pod of a create or update of pods themselves.
func (a *Attributes) pod() (*corev1.Pod, bool) {
	if !a.is("", "pods", "") {
		return nil, false
	}
	pod, ok := a.Object.(*corev1.Pod)
	return pod, ok
}

// objectName is the name of the object, which for a create may be in the object alone.
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

// forbid refuses the write with a Forbidden StatusError about its object.
func (a *Attributes) forbid(err error) error {
	if apierrors.IsForbidden(err) {
		return err
	}
	return a.Forbidden(err)
}

// Forbidden refuses the write; the objects of a collection that is deleted are "Unknown", as upstream calls them.
func (a *Attributes) Forbidden(err error) *apierrors.StatusError {
	return apierrors.NewForbidden(a.groupResource(), cmp.Or(a.objectName(), "Unknown"), err)
}

// bare tells an error in its own words, and as the server's: what upstream's plugins do not say as a refusal.
func bare(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}

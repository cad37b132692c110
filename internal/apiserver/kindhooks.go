package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// hookKinds sets the hooks of kinds: steps that need the server's configuration or another part of
// the server, so that a strategy cannot do them.
func (s *Server) hookKinds() {
	es := s.endpoints
	es.Hook("", "services", func(h *registry.Hooks) { *h = s.services.Hooks() })
	es.Hook(apiextensionsv1.GroupName, "customresourcedefinitions", func(h *registry.Hooks) {
		h.MarkDeleted = func(obj runtime.Object, now metav1.Time) {
			custom.MarkDeleted(obj.(*apiextensionsv1.CustomResourceDefinition), now)
		}
	})
	es.Hook(resourcev1.GroupName, "resourceslices", func(h *registry.Hooks) { h.SetTimes = setTaintTimes })
	if s.cfg.NoPrivileged {
		es.RefusePrivileged()
	}
	for _, name := range []string{"resourceclaims", "resourceclaimtemplates"} {
		es.Hook(resourcev1.GroupName, name, func(h *registry.Hooks) {
			h.Validate = func(ctx context.Context, a *admission.Attributes) (field.ErrorList, error) {
				return s.access.Admission().ValidateFields(ctx, a)
			}
		})
	}
	es.Hook("", "persistentvolumes", func(h *registry.Hooks) {
		h.Update = func(_ context.Context, _ *registry.Transaction, obj, old runtime.Object) error {
			setPhaseTime(obj, old, s.shared.Now())
			return nil
		}
	})
}

// setTaintTimes sets the time of device taints that have none.
func setTaintTimes(obj runtime.Object, now metav1.Time) {
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return
	}
	for i := range slice.Spec.Devices {
		taints := slice.Spec.Devices[i].Taints
		for j := range taints {
			if taints[j].TimeAdded == nil {
				taints[j].TimeAdded = &now
			}
		}
	}
}

// setPhaseTime sets the time of a phase change of a volume, unless the writer has set it.
func setPhaseTime(obj, old runtime.Object, now metav1.Time) {
	v, ok := obj.(*corev1.PersistentVolume)
	before, same := old.(*corev1.PersistentVolume)
	if ok && same && v.Status.Phase != before.Status.Phase && v.Status.LastPhaseTransitionTime.Equal(before.Status.LastPhaseTransitionTime) {
		v.Status.LastPhaseTransitionTime = &now
	}
}

// owned records in a new object's managedFields that the server itself has set its fields.
func (s *Server) owned(kind *registry.Endpoint, obj runtime.Object) runtime.Object {
	op := s.engine.InternalOperation(kind, "", wire.Accessor(obj).GetName())
	op.FieldManager = registry.ComponentManager(op.User.Name)
	return op.TrackFields(kind.NewObject(), obj)
}

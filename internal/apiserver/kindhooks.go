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
	"github.com/knarr-project/knarr/internal/resource"
)

// hookKinds lists what kinds do besides what their strategies say, because it needs the server's
// configuration or another part of the server.
func (s *Server) hookKinds() {
	es := s.endpoints
	es.hook("", "services", func(h *hooks) { *h = s.services.hooks() })
	es.hook(apiextensionsv1.GroupName, "customresourcedefinitions", func(h *hooks) {
		h.deleting = func(obj runtime.Object, now metav1.Time) {
			custom.MarkDeleted(obj.(*apiextensionsv1.CustomResourceDefinition), now)
		}
	})
	es.hook(resourcev1.GroupName, "resourceslices", func(h *hooks) { h.stamp = stampTaints })
	if s.cfg.NoPrivileged {
		es.refusePrivileged()
	}
	for _, name := range []string{"resourceclaims", "resourceclaimtemplates"} {
		es.hook(resourcev1.GroupName, name, func(h *hooks) {
			h.fields = func(ctx context.Context, a *admission.Attributes) (field.ErrorList, error) {
				return s.access.Admission().ValidateFields(ctx, a)
			}
		})
	}
	es.hook("", "persistentvolumes", func(h *hooks) {
		h.update = func(_ context.Context, _ *txn, obj, old runtime.Object) error {
			stampPhase(obj, old, s.shared.now())
			return nil
		}
	})
}

// refusePrivileged reports privileged containers together with other field errors, as upstream
// does. Writes to status and scale are not checked.
func (es *endpoints) refusePrivileged() {
	for _, r := range es.registries {
		if !resource.MakesPods(r.kind.New()) {
			continue
		}
		r.hooks.fields = func(_ context.Context, a *admission.Attributes) (field.ErrorList, error) {
			if a.Subresource == "status" || a.Subresource == "scale" {
				return nil, nil
			}
			return resource.Privileged(a.Object), nil
		}
	}
}

// stampTaints sets the time of device taints that have none.
func stampTaints(obj runtime.Object, now metav1.Time) {
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

// stampPhase sets the time of a phase change of a volume, unless the writer has set it.
func stampPhase(obj, old runtime.Object, now metav1.Time) {
	v, ok := obj.(*corev1.PersistentVolume)
	before, same := old.(*corev1.PersistentVolume)
	if ok && same && v.Status.Phase != before.Status.Phase && v.Status.LastPhaseTransitionTime.Equal(before.Status.LastPhaseTransitionTime) {
		v.Status.LastPhaseTransitionTime = &now
	}
}

// owned records in a new object's managedFields that the server itself has set its fields.
func (s *Server) owned(kind *endpoint, obj runtime.Object) runtime.Object {
	op := s.engine.internal(kind, "", accessor(obj).GetName())
	op.fieldManager = componentManager(op.user.Name)
	return op.trackFields(kind.newObject(), obj)
}

package apiserver

import (
	"context"

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
}

// owned records in a new object's managedFields that the server itself has set its fields.
func (s *Server) owned(kind *registry.Endpoint, obj runtime.Object) runtime.Object {
	op := s.engine.InternalOperation(kind, "", wire.Accessor(obj).GetName())
	op.FieldManager = registry.ComponentManager(op.User.Name)
	return op.TrackFields(nil, obj)
}

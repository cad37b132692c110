package admission

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/rbac"
)

// grants refuses roles and bindings that give more than their writer has. Upstream does this before the storage of
// roles and bindings and has no plugin of this name; it can not be turned off there, nor should it be here.
type grants struct {
	base
	rbac.Grants
}

func newGrants(roles *rbac.Authorizer, z auth.Authorizer) Plugin {
	if roles == nil {
		return nil
	}
	return grants{base{"RoleEscalation", []Operation{Create, Update}}, rbac.Grants{Rules: roles, Authorizer: z}}
}

// Validate implements Validator.
func (p grants) Validate(ctx context.Context, a *Attributes) error {
	if a.Resource.Group != rbacv1.GroupName || a.Subresource != "" || a.Object == nil {
		return nil
	}
	return p.Check(ctx, a.User, a.Verb == "create", a.Object, a.OldObject)
}

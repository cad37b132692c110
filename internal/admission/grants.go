package admission

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/rbac"
)

// grants refuses roles and bindings that grant more than their author has. Upstream checks this in
// the storage of roles and bindings; it has no plugin of this name. As upstream, the check cannot
// be turned off.
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

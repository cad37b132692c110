package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/client"
)

// adminAccess refuses claims with access to devices that others use (KEP-5018), except in
// namespaces labelled for administrators. Upstream checks this in the validation of claims and
// templates; it has no plugin of this name.
type adminAccess struct {
	base
	namespaces *client.Lazy[*corev1.Namespace]
}

func newAdminAccess(namespaces *client.Lazy[*corev1.Namespace]) Plugin {
	return adminAccess{base{"DeviceAdminAccess", []Operation{Create, Update}}, namespaces}
}

// ValidateFields implements FieldValidator.
func (p adminAccess) ValidateFields(ctx context.Context, a *Attributes) (field.ErrorList, error) {
	if a.Resource.Group != resourcev1.GroupName || !wantsAdminAccess(a) {
		return nil, nil
	}
	namespace, err := p.namespaces.Find(ctx, "", a.Namespace)
	if err != nil || namespace.Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
		return nil, err
	}
	return field.ErrorList{field.Forbidden(adminAccessPath(a),
		"admin access to devices requires the `"+resourcev1.DRAAdminNamespaceLabelKey+": true` label on the containing namespace")}, nil
}

// wantsAdminAccess reports whether the write requests or grants admin access. It need not look at
// updates of a spec, which is immutable.
func wantsAdminAccess(a *Attributes) bool {
	switch o := a.Object.(type) {
	case *resourcev1.ResourceClaimTemplate:
		return a.Operation == Create && requestsAdminAccess(&o.Spec.Spec)
	case *resourcev1.ResourceClaim:
		if a.Subresource == "status" {
			old, _ := a.OldObject.(*resourcev1.ResourceClaim)
			return hasAdminAccess(o) && !hasAdminAccess(old)
		}
		return a.Operation == Create && requestsAdminAccess(&o.Spec)
	}
	return false
}

// adminAccessPath returns the path of the first admin access in a claim, a template, or an
// allocation.
func adminAccessPath(a *Attributes) *field.Path {
	switch o := a.Object.(type) {
	case *resourcev1.ResourceClaimTemplate:
		return ofRequests(&o.Spec.Spec)
	case *resourcev1.ResourceClaim:
		if a.Subresource != "status" {
			return ofRequests(&o.Spec)
		}
		i := slices.IndexFunc(o.Status.Allocation.Devices.Results, givesAdminAccess)
		return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
	}
	return nil
}

func ofRequests(spec *resourcev1.ResourceClaimSpec) *field.Path {
	return field.NewPath("spec", "devices", "requests").Index(slices.IndexFunc(spec.Devices.Requests, asksAdminAccess)).Child("adminAccess")
}

func asksAdminAccess(r resourcev1.DeviceRequest) bool {
	return r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess
}

func requestsAdminAccess(spec *resourcev1.ResourceClaimSpec) bool {
	return slices.ContainsFunc(spec.Devices.Requests, asksAdminAccess)
}

func hasAdminAccess(claim *resourcev1.ResourceClaim) bool {
	return claim != nil && claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results, givesAdminAccess)
}

func givesAdminAccess(r resourcev1.DeviceRequestAllocationResult) bool {
	return r.AdminAccess != nil && *r.AdminAccess
}

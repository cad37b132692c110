package admission

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/auth"
)

// claimStatus checks permissions for parts of a ResourceClaim's status, in addition to
// resourceclaims/status (KEP-4817). Allocation and reservations need resourceclaims/binding; device
// statuses need resourceclaims/driver with the driver's name. Upstream checks this in the
// validation of claims; it has no plugin of this name.
type claimStatus struct {
	base
	authorizer auth.Authorizer
}

func newClaimStatus(authorizer auth.Authorizer) Plugin {
	return claimStatus{base{"DeviceClaimStatus", []Operation{Update}}, authorizer}
}

// ValidateFields implements FieldValidator.
func (p claimStatus) ValidateFields(ctx context.Context, a *Attributes) (field.ErrorList, error) {
	old, claim, ok := updated[*resourcev1.ResourceClaim](a, resourcev1.GroupName, "resourceclaims", "status")
	if !ok {
		return nil, nil
	}
	return append(p.mayBind(ctx, a, claim, old), p.mayReport(ctx, a, claim, old)...), nil
}

// permission returns the attributes of the check for one part of the status, which has a
// subresource of its own.
func permission(a *Attributes, subresource, verb string) auth.Attributes {
	return auth.Attributes{User: a.User, Verb: verb, Group: a.Resource.Group, Version: a.Resource.Version, Resource: a.Resource.Resource, Subresource: subresource}
}

func (p claimStatus) mayBind(ctx context.Context, a *Attributes, claim, old *resourcev1.ResourceClaim) field.ErrorList {
	if equality.Semantic.DeepEqual(claim.Status.Allocation, old.Status.Allocation) && equality.Semantic.DeepEqual(claim.Status.ReservedFor, old.Status.ReservedFor) {
		return nil
	}
	if err := auth.Check(ctx, p.authorizer, permission(a, "binding", a.Verb)); err != nil {
		return field.ErrorList{field.Forbidden(field.NewPath("status", "allocation"),
			fmt.Sprintf("changing status.allocation or status.reservedFor requires resource=%q, verb=%q permission: %v", "resourceclaims/binding", a.Verb, err))}
	}
	return nil
}

func (p claimStatus) mayReport(ctx context.Context, a *Attributes, claim, old *resourcev1.ResourceClaim) (errs field.ErrorList) {
	if claim.Status.Allocation == nil {
		return nil // removing an allocation removes its device statuses as well
	}
	verbs := []string{"arbitrary-node:" + a.Verb}
	if runsOnAllocatedNode(a.User, claim.Status.Allocation) {
		verbs = slices.Insert(verbs, 0, "associated-node:"+a.Verb)
	}
	for _, driver := range changedDrivers(claim.Status.Devices, old.Status.Devices) {
		var first error
		for _, verb := range verbs {
			ask := permission(a, "driver", verb)
			ask.Namespace, ask.Name = a.Namespace, driver
			err := auth.Check(ctx, p.authorizer, ask)
			if err == nil {
				first = nil
				break
			}
			if first == nil {
				first = err
			}
		}
		if first != nil {
			errs = append(errs, field.Forbidden(field.NewPath("status", "devices"),
				fmt.Sprintf("changing status.devices requires resource=%q, verb=%q permission: %v", "resourceclaims/driver", fmt.Sprint(verbs), first)))
		}
	}
	return errs
}

// nodeOfToken is the claim of a service account token that names the node of its pod.
const nodeOfToken = "authentication.kubernetes.io/node-name"

// runsOnAllocatedNode reports whether the user is a service account on the single node of an
// allocation.
func runsOnAllocatedNode(user auth.User, allocation *resourcev1.AllocationResult) bool {
	if _, _, ok := auth.SplitServiceAccount(user.Name); !ok || len(user.Extra[nodeOfToken]) != 1 || allocation.NodeSelector == nil || len(allocation.NodeSelector.NodeSelectorTerms) != 1 {
		return false
	}
	term := &allocation.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return false
	}
	f := &term.MatchFields[0]
	return f.Key == "metadata.name" && f.Operator == "In" && slices.Equal(f.Values, user.Extra[nodeOfToken])
}

// changedDrivers returns the drivers whose device statuses changed, sorted.
func changedDrivers(now, before []resourcev1.AllocatedDeviceStatus) (drivers []string) {
	type device struct{ driver, pool, name, share string }
	id := func(d *resourcev1.AllocatedDeviceStatus) device {
		share := ""
		if d.ShareID != nil {
			share = *d.ShareID
		}
		return device{d.Driver, d.Pool, d.Device, share}
	}
	was := make(map[device]*resourcev1.AllocatedDeviceStatus, len(before))
	for i := range before {
		was[id(&before[i])] = &before[i]
	}
	changed := func(driver string) {
		if i, found := slices.BinarySearch(drivers, driver); !found {
			drivers = slices.Insert(drivers, i, driver)
		}
	}
	for i := range now {
		d := &now[i]
		if old := was[id(d)]; old == nil || !equality.Semantic.DeepEqual(old, d) {
			changed(d.Driver)
		}
		delete(was, id(d))
	}
	for gone := range was {
		changed(gone.driver)
	}
	return drivers
}

package dra

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ResourceClaimStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultResourceClaim)
	s.ValidateCreate = strategy.Checks(validateResourceClaim)
	s.ValidateUpdate = strategy.ChecksBoth(validateResourceClaimUpdate)
	s.KeepMetadataInStatus()
	s.PrepareStatus = strategy.OnBoth(func(c, old *resourcev1.ResourceClaim) {
		strategy.OnlyStatus(c, old, "Spec")
		if c.Status.Allocation == nil && old.Status.Allocation != nil {
			c.Status.Devices = nil // drivers report on allocated devices only
		}
	})
	s.ValidateStatus = strategy.ChecksBoth(validateResourceClaimStatus)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), resourceClaimColumns, resourceClaimRow)
}

func defaultClaimRequests(requests []resourcev1.DeviceRequest) {
	for i := range requests {
		if e := requests[i].Exactly; e != nil {
			defaultAllocation(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range requests[i].FirstAvailable {
			s := &requests[i].FirstAvailable[j]
			defaultAllocation(&s.AllocationMode, &s.Count, s.Tolerations)
		}
	}
}

func defaultAllocation(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
	strategy.SetDefault(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		strategy.SetDefault(count, 1)
	}
	for i := range tolerations {
		strategy.SetDefault(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	defaultClaimRequests(c.Spec.Devices.Requests)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			tolerations := a.Devices.Results[i].Tolerations
			for j := range tolerations {
				strategy.SetDefault(&tolerations[j].Operator, resourcev1.DeviceTolerationOpEqual)
			}
		}
	}
}

func validateResourceClaim(c *resourcev1.ResourceClaim) field.ErrorList {
	return validateDeviceClaim(&c.Spec, nil, validate.SpecPath)
}

func validateResourceClaimUpdate(c, old *resourcev1.ResourceClaim) field.ErrorList {
	return validate.Immutable(c.Spec, old.Spec, validate.SpecPath)
}

var resourceClaimColumns = columns.Define("Name", "State=A summary of the current state (allocated, pending, reserved, etc.).", "Age")

func resourceClaimRow(c *resourcev1.ResourceClaim, now metav1.Time) []any {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	if c.Status.Allocation == nil {
		if c.DeletionTimestamp == nil {
			states = append(states, "pending")
		}
	} else {
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	}
	return []any{c.Name, strings.Join(states, ","), columns.AgeOf(c, now)}
}

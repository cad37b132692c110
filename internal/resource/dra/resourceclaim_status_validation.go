package dra

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// maxDeviceConditions is the number of conditions that the API reference allows per device.
const maxDeviceConditions = 8

// allocated identifies a device allocated to a claim, in the form that messages show.
type allocated struct{ Driver, Pool, Device, ShareID string }

// validateResourceClaimStatus checks a claim's users and device statuses. An allocation cannot
// change; it can only be removed.
func validateResourceClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	at := field.NewPath("status")
	requests := requestNames(&old.Spec)
	errs := validateReservedFor(c, old, at.Child("reservedFor"))
	errs = append(errs, validateDeviceStatuses(c, old, at.Child("devices"))...)
	switch {
	case c.Status.Allocation == nil:
	case old.Status.Allocation != nil:
		errs = append(errs, validate.Immutable(c.Status.Allocation, old.Status.Allocation, at.Child("allocation"))...)
	default:
		errs = append(errs, validateAllocation(c.Status.Allocation, requests, at.Child("allocation"))...)
	}
	if len(c.Status.ReservedFor) == 0 {
		return errs
	}
	at = at.Child("reservedFor")
	if c.Status.Allocation == nil {
		return append(errs, field.Forbidden(at, "may not be specified when `allocated` is not set"))
	}
	return errs
}

func validateReservedFor(c, old *resourcev1.ResourceClaim, at *field.Path) field.ErrorList {
	seen := map[types.UID]bool{}
	errs := limited(len(c.Status.ReservedFor), resourcev1.ResourceClaimReservedForMaxSize, at, func(i int, at *field.Path) field.ErrorList {
		r := &c.Status.ReservedFor[i]
		var errs field.ErrorList
		for _, f := range []struct{ name, value string }{{"resource", r.Resource}, {"name", r.Name}, {"uid", string(r.UID)}} {
			if f.value == "" {
				errs = append(errs, field.Required(at.Child(f.name), ""))
			}
		}
		if seen[r.UID] {
			errs = append(errs, field.Duplicate(at, r.UID))
		}
		seen[r.UID] = true
		return errs
	})
	isNew := func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, r)
	}
	// A changed entry counts as new.
	if old.DeletionTimestamp != nil && c.Status.Allocation != nil && slices.ContainsFunc(c.Status.ReservedFor, isNew) {
		errs = append(errs, field.Forbidden(at, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	return errs
}

// validateDeviceStatuses checks that device statuses belong to allocated devices or existed before.
func validateDeviceStatuses(c, old *resourcev1.ResourceClaim, at *field.Path) field.ErrorList {
	got := map[allocated]bool{}
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			share := ""
			if r.ShareID != nil {
				share = string(*r.ShareID)
			}
			got[allocated{r.Driver, r.Pool, r.Device, share}] = true
		}
	}
	for _, d := range old.Status.Devices {
		got[allocated{d.Driver, d.Pool, d.Device, validate.Deref(d.ShareID)}] = true
	}
	seen := map[allocated]bool{}
	var errs field.ErrorList
	for i := range c.Status.Devices {
		d, at := &c.Status.Devices[i], at.Index(i)
		id := allocated{d.Driver, d.Pool, d.Device, validate.Deref(d.ShareID)}
		errs = append(errs, validateDeviceStatus(d, at)...)
		if seen[id] {
			errs = append(errs, field.Duplicate(at, id))
		}
		seen[id] = true
		if !got[id] {
			errs = append(errs, field.Invalid(at, id, "must be an allocated device in the claim"))
		}
	}
	return errs
}

func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, at *field.Path) field.ErrorList {
	errs := validateDRADriver(d.Driver, at.Child("driver"))
	errs = append(errs, validatePoolName(d.Pool, at.Child("pool"))...)
	errs = append(errs, validate.Label(d.Device, at.Child("device"))...)
	if d.ShareID != nil {
		errs = append(errs, validateShare(*d.ShareID, at.Child("shareID"))...)
	}
	errs = append(errs, tooMany(len(d.Conditions), maxDeviceConditions, at.Child("conditions"))...)
	errs = append(errs, metavalidation.ValidateConditions(d.Conditions, at.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateRawObject(*d.Data, at.Child("data"))...)
	}
	return append(errs, validateNetworkData(d.NetworkData, at.Child("networkData"))...)
}

func validateShare(id string, at *field.Path) field.ErrorList {
	if _, err := uuid.Parse(id); err != nil {
		return field.ErrorList{field.Invalid(at, id, fmt.Sprintf("error validating uid: %v", err))}
	}
	return nil
}

func validateNetworkData(n *resourcev1.NetworkDeviceData, at *field.Path) field.ErrorList {
	if n == nil {
		return nil
	}
	var errs field.ErrorList
	if len(n.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
		errs = append(errs, field.TooLong(at.Child("interfaceName"), "", resourcev1.NetworkDeviceDataInterfaceNameMaxLength))
	}
	if len(n.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
		errs = append(errs, field.TooLong(at.Child("hardwareAddress"), "", resourcev1.NetworkDeviceDataHardwareAddressMaxLength))
	}
	seen := map[string]bool{}
	return append(errs, limited(len(n.IPs), resourcev1.NetworkDeviceDataMaxIPs, at.Child("ips"), func(i int, at *field.Path) field.ErrorList {
		errs := validation.IsValidInterfaceAddress(at, n.IPs[i])
		if seen[n.IPs[i]] {
			errs = append(errs, field.Duplicate(at, n.IPs[i]))
		}
		seen[n.IPs[i]] = true
		return errs
	})...)
}

func validateAllocation(a *resourcev1.AllocationResult, requests map[string]bool, at *field.Path) field.ErrorList {
	devices := at.Child("devices")
	errs := limited(len(a.Devices.Results), resourcev1.AllocationResultsMaxSize, devices.Child("results"), func(i int, at *field.Path) field.ErrorList {
		return validateAllocated(&a.Devices.Results[i], requests, at)
	})
	const most = 2 * resourcev1.DeviceConfigMaxSize // those of classes and those of the claim
	errs = append(errs, limited(len(a.Devices.Config), most, devices.Child("config"), func(i int, at *field.Path) field.ErrorList {
		c := &a.Devices.Config[i]
		errs := validate.OneOf(c.Source, at.Child("source"), resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
		errs = append(errs, validateRequestNames(c.Requests, requests, at.Child("requests"))...)
		return append(errs, validateOpaque(c.Opaque, at)...)
	})...)
	if a.NodeSelector != nil {
		errs = append(errs, validate.NodeSelector(a.NodeSelector, at.Child("nodeSelector"))...)
	}
	return errs
}

func validateAllocated(r *resourcev1.DeviceRequestAllocationResult, requests map[string]bool, at *field.Path) field.ErrorList {
	errs := validateRequestReference(r.Request, requests, at.Child("request"))
	errs = append(errs, validateDRADriver(r.Driver, at.Child("driver"))...)
	errs = append(errs, validatePoolName(r.Pool, at.Child("pool"))...)
	errs = append(errs, validate.Label(r.Device, at.Child("device"))...)
	errs = append(errs, validateBindingConditions(r.BindingConditions, r.BindingFailureConditions, at)...)
	if r.ShareID != nil {
		errs = append(errs, validateShare(string(*r.ShareID), at.Child("shareID"))...)
	}
	return errs
}

// validateRequestReference checks a reference to a request, or to a subrequest as
// "request/subrequest".
func validateRequestReference(name string, requests map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	parts := strings.Split(name, "/")
	if len(parts) <= 2 {
		for _, part := range parts {
			errs = append(errs, validate.Label(part, at)...)
		}
	}
	return append(errs, validateRequestName(name, requests, at)...)
}

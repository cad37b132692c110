package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// rack shows a case's devices to knarr's plugins.
type rack struct {
	c         *Case
	tally     framework.Tally
	versions  *framework.DeviceVersions
	slices    []*resourcev1.ResourceSlice
	selectors *cel.Cache
}

func newRack(c *Case) *rack {
	return &rack{c: c, tally: framework.NewTally(), versions: framework.NewDeviceVersions(), selectors: cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})}
}

// fill shows the case's devices step by step. The plugins keep results of each step, which must not
// count in the next one. decide decides about the pod.
func (r *rack) fill(decide func()) {
	var allocated []*resourcev1.ResourceClaim
	for _, claim := range r.c.DeviceClaims {
		if claim.Status.Allocation != nil {
			allocated = append(allocated, claim)
		}
	}
	count := func(claims []*resourcev1.ResourceClaim) {
		for _, claim := range claims {
			r.tally.Add(claim.Status.Allocation)
			r.versions.Touch(claim.Status.Allocation)
		}
	}
	show := func(n int) {
		r.slices = r.c.Slices[:n]
		r.versions.SetSlices(r.slices)
	}
	const untilKept = 3 // results for claims are kept from the second time on
	show(len(r.c.Slices) / 2)
	for range untilKept {
		decide()
	}
	show(len(r.c.Slices))
	count(allocated[:len(allocated)/2])
	for range untilKept {
		decide()
	}
	count(allocated[len(allocated)/2:])
}

// Claim implements framework.Devices.
func (r *rack) Claim(namespace, name string) (claim *resourcev1.ResourceClaim, beingAllocated, ok bool) {
	claim, ok = find(r.c.DeviceClaims, namespace, name)
	return claim, false, ok
}

// ExtendedClaim implements framework.Devices.
func (r *rack) ExtendedClaim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	return framework.ExtendedClaimOf(pod, slices.DeleteFunc(slices.Clone(r.c.DeviceClaims), func(c *resourcev1.ResourceClaim) bool { return c.Namespace != pod.Namespace }))
}

// Class implements framework.Devices.
func (r *rack) Class(name string) (*resourcev1.DeviceClass, bool) {
	return find(r.c.DeviceClasses, "", name)
}

// Classes implements framework.Devices.
func (r *rack) Classes() []*resourcev1.DeviceClass { return r.c.DeviceClasses }

// Selectors implements framework.Devices.
func (r *rack) Selectors() *cel.Cache { return r.selectors }

// Inventory implements framework.Devices.
func (r *rack) Inventory() framework.Inventory {
	return framework.Inventory{Slices: r.slices, Allocated: r.tally.State(), Versions: r.versions}
}

// waitsForClaims reports whether a pod waits for claims before it is queued.
func waitsForClaims(profile *framework.Profile, devices framework.Devices, pod *corev1.Pod) bool {
	for _, p := range profile.PreFilters {
		if p, ok := p.(interface {
			ClaimsExist(framework.Devices, *corev1.Pod) *framework.Status
		}); ok && len(pod.Spec.ResourceClaims) > 0 {
			return p.ClaimsExist(devices, pod) != nil
		}
	}
	return false
}

// devicesOf returns what the claims get on the feasible nodes.
func devicesOf(in *scheduler.Input, d *scheduler.Decision) map[string]map[string]string {
	decided, ok := d.State[framework.DynamicResources].(framework.DeviceDecisions)
	if !ok {
		return nil
	}
	found := map[string]map[string]string{}
	for _, node := range feasibleIn(in, d) {
		own := decided.Extended(node.Name())
		for claim, allocation := range decided.On(node.Name()) {
			text := allocationText(allocation)
			if own != nil && claim == own.Claim.Name {
				text = extendedText(own.Claim, own.Mappings, text)
			}
			note(found, node.Name(), claim, text)
		}
	}
	return found
}

// claimsInTheWay returns the claims whose devices are not usable on some node.
func claimsInTheWay(d *scheduler.Decision) (names []string) {
	if decided, ok := d.State[framework.DynamicResources].(framework.DeviceDecisions); ok {
		for _, claim := range decided.InTheWay() {
			names = append(names, claim.Name)
		}
	}
	slices.Sort(names)
	return names
}

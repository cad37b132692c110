package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Bounds of the memory: an answer with one device has about 1 KB, and a key some 100 bytes.
const (
	maxDeviceAnswers = 1 << 15
	maxSeenClaims    = 1 << 10
)

// deviceAnswers keeps the results of searches for devices by claims and node. Claims with equal
// specs share results. A result counts until the node's DeviceVersion changes, so a decision
// searches only on the nodes whose devices changed (ADR 104). One goroutine uses it.
type deviceAnswers struct {
	search deviceSearch
	slices uint64 // version of the slices that the allocator knows

	of map[string]*answersForClaims
	// seen has the keys that came once: claims that are unlike all others are not worth the memory.
	seen map[string]bool
	uses uint64
	size int // number of answers
	key  []byte
}

// deviceSearch searches for devices.
type deviceSearch struct {
	allocator structured.Allocator
	versions  *framework.DeviceVersions // nil if results cannot be kept
}

// answersForClaims has the answers for claims with certain specs. A nil one keeps nothing.
type answersForClaims struct {
	key  string
	used uint64
	on   map[string]deviceAnswer // by node
}

// deviceAnswer is what claims get on a node; nothing if they cannot get devices there. The results
// are shared and read-only.
type deviceAnswer struct {
	node    *corev1.Node
	version framework.DeviceVersion
	results []resourcev1.AllocationResult
}

// searchIn returns a search in the current devices. Later calls bring it up to date.
func (a *deviceAnswers) searchIn(devices framework.Devices) (*deviceSearch, error) {
	inventory := devices.Inventory()
	versions := inventory.Versions
	if versions == nil {
		allocator, err := newDeviceAllocator(devices, inventory)
		return &deviceSearch{allocator: allocator}, err
	}
	known := a.search.versions == versions && a.slices == versions.Slices()
	// An allocator remembers how much of shared counters is left.
	if known && !versions.HaveCounters() {
		return &a.search, nil
	}
	allocator, err := newDeviceAllocator(devices, inventory)
	if err != nil {
		return nil, err
	}
	if !known {
		a.of, a.size = map[string]*answersForClaims{}, 0
	}
	a.search, a.slices = deviceSearch{allocator, versions}, versions.Slices()
	return &a.search, nil
}

func newDeviceAllocator(devices framework.Devices, inventory framework.Inventory) (structured.Allocator, error) {
	return structured.NewAllocator(context.Background(), deviceFeatures, inventory.Allocated, classLister{devices}, inventory.Slices, devices.Selectors())
}

// forClaims returns the answers for such claims; nil when they come for the first time.
func (a *deviceAnswers) forClaims(search *deviceSearch, devices framework.Devices, claims []*resourcev1.ResourceClaim) *answersForClaims {
	if search.versions == nil || !a.makeKey(devices, claims) {
		return nil
	}
	a.uses++
	answers := a.of[string(a.key)]
	if answers == nil {
		if !a.seen[string(a.key)] {
			if a.seen == nil || len(a.seen) >= maxSeenClaims {
				a.seen = map[string]bool{}
			}
			a.seen[string(a.key)] = true
			return nil
		}
		delete(a.seen, string(a.key))
		answers = &answersForClaims{key: string(a.key), on: map[string]deviceAnswer{}}
		a.of[answers.key] = answers
	}
	answers.used = a.uses
	return answers
}

// makeKey writes what a search reads of claims and their classes. It returns false if it cannot.
func (a *deviceAnswers) makeKey(devices framework.Devices, claims []*resourcev1.ResourceClaim) bool {
	a.key = a.key[:0]
	for _, claim := range claims {
		spec, err := claim.Spec.Marshal()
		if err != nil {
			return false
		}
		a.key = appendString(a.key, string(spec))
		for i := range claim.Spec.Devices.Requests {
			r := &claim.Spec.Devices.Requests[i]
			if r.Exactly != nil && !a.addClass(devices, r.Exactly.DeviceClassName) {
				return false
			}
			for k := range r.FirstAvailable {
				if !a.addClass(devices, r.FirstAvailable[k].DeviceClassName) {
					return false
				}
			}
		}
	}
	return true
}

func (a *deviceAnswers) addClass(devices framework.Devices, name string) bool {
	class, ok := devices.Class(name)
	if ok {
		a.key = appendString(appendString(a.key, string(class.UID)), class.ResourceVersion)
	}
	return ok
}

// keep keeps the results of a search on a node, unless the answers were dropped meanwhile.
func (a *deviceAnswers) keep(in *answersForClaims, node *corev1.Node, version framework.DeviceVersion, results []resourcev1.AllocationResult) {
	if a.of[in.key] != in {
		return
	}
	for i := range results {
		for k := range results[i].Devices.Results {
			if results[i].Devices.Results[k].ShareID != nil {
				return // each allocation has another random ID
			}
		}
	}
	before := len(in.on)
	in.on[node.Name] = deviceAnswer{node, version, results}
	if a.size += len(in.on) - before; a.size > maxDeviceAnswers {
		a.evict()
	}
}

// evict drops the answers for the claims that did not come for the longest time.
func (a *deviceAnswers) evict() {
	var oldest *answersForClaims
	for _, answers := range a.of {
		if oldest == nil || answers.used < oldest.used {
			oldest = answers
		}
	}
	a.size -= len(oldest.on)
	delete(a.of, oldest.key)
}

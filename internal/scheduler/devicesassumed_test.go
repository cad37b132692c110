package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// claimsByName is a View of claims that tests fill.
type claimsByName struct {
	client.View
	mu     sync.Mutex
	claims map[string]*resourcev1.ResourceClaim
}

func (v *claimsByName) Get(_, name string) (runtime.Object, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c, ok := v.claims[name]
	return c, ok
}

func (v *claimsByName) set(c *resourcev1.ResourceClaim) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.claims[c.Name] = c
}

func (v *claimsByName) WaitFor(context.Context, int64) error { return nil }

// devicesWith returns devices with these claims.
func devicesWith(t *testing.T, claims ...*resourcev1.ResourceClaim) (*devices, *claimsByName) {
	v := &claimsByName{claims: map[string]*resourcev1.ResourceClaim{}}
	for _, c := range claims {
		v.set(c)
	}
	d := newDevices(t.Context(), nil, func(framework.Events, func(*framework.PodInfo) bool) {}, func(*resourcev1.ResourceClaim) {})
	d.claims = client.ViewOf[*resourcev1.ResourceClaim]{View: v}
	return d, v
}

func freeClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
}

func TestForgettingAnAllocationKeepsALaterOneOfTheSameClaim(t *testing.T) {
	claim := freeClaim("c")
	d, _ := devicesWith(t, claim)
	first, second := &resourcev1.AllocationResult{}, &resourcev1.AllocationResult{}
	d.assume(claim, first)
	d.assume(claim, second)
	d.forget(claim, first)
	if _, being, _ := d.Claim("ns", "c"); !being {
		t.Error("the end of the first attempt released the devices of the second one")
	}
	d.forget(claim, second)
	if _, being, _ := d.Claim("ns", "c"); being {
		t.Error("the claim still counts as being allocated")
	}
}

// The allocation may be written after Claim has read the claim, but before it reads who allocates
// it.
func TestAClaimBeingAllocatedNeverLooksFree(t *testing.T) {
	for i := range 1000 {
		claim := freeClaim(fmt.Sprint("c", i))
		d, view := devicesWith(t, claim)
		allocation := &resourcev1.AllocationResult{}
		d.assume(claim, allocation)
		var wg sync.WaitGroup
		wg.Go(func() {
			written := claim.DeepCopy()
			written.Status.Allocation = allocation
			view.set(written)
			d.forget(claim, allocation)
		})
		for {
			now, being, ok := d.Claim("ns", claim.Name)
			if !ok || now.Status.Allocation == nil && !being {
				t.Fatalf("after %d: there %v, being allocated %v, %+v", i, ok, being, now.Status)
			}
			if !being {
				break
			}
		}
		wg.Wait()
	}
}

// allocationOf allocates devices of a pool; "x/1" is share 1 of device x.
func allocationOf(devices ...string) *resourcev1.AllocationResult {
	a := &resourcev1.AllocationResult{}
	for _, device := range devices {
		name, share, shared := strings.Cut(device, "/")
		r := resourcev1.DeviceRequestAllocationResult{Driver: "d", Pool: "p", Device: name}
		if shared {
			id := types.UID(share)
			r.ShareID, r.ConsumedCapacity = &id, map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}
		}
		a.Devices.Results = append(a.Devices.Results, r)
	}
	return a
}

func TestDevicesCountWhileAClaimHasThem(t *testing.T) {
	one, two := freeClaim("one"), freeClaim("two")
	d, view := devicesWith(t, one, two)
	expect := func(when string, want ...string) {
		t.Helper()
		var got []string
		state := d.Inventory().Allocated
		for id := range state.AllocatedDevices {
			got = append(got, id.Device.String())
		}
		for id, used := range state.AggregatedCapacity {
			got = append(got, id.Device.String()+":"+used["memory"].String())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	write := func(claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult) {
		written := claim.DeepCopy()
		written.Status.Allocation = allocation
		view.set(written)
	}
	expect("at first")
	first, second := allocationOf("x", "s/1"), allocationOf("x", "s/2")
	d.assume(one, first)
	expect("assumed", "s:1Gi", "x")
	d.assume(two, second)
	expect("two claims with a device", "s:2Gi", "x")
	write(one, first.DeepCopy())
	d.forget(one, first)
	expect("written, before the event", "s:2Gi", "x")
	d.notify(one)
	expect("written", "s:2Gi", "x")
	d.forget(two, second)
	expect("one gave up", "s:1Gi", "x")
	write(one, nil)
	d.notify(one)
	expect("released")
	write(one, first)
	d.notify(one)
	again := freeClaim("one")
	again.UID = "another"
	view.set(again) // deleted and created again
	d.notify(one)
	expect("another claim of the name")
}

func TestAllocatedLooksAtChangedClaimsOnly(t *testing.T) {
	a := newAllocations()
	for i := range 100 {
		a.note(freeClaim(fmt.Sprint(i)))
	}
	looks := 0
	lookUp := func(types.UID, types.NamespacedName) *resourcev1.AllocationResult { looks++; return nil }
	a.state(lookUp)
	a.note(freeClaim("7"))
	a.state(lookUp)
	a.state(lookUp)
	if looks != 101 {
		t.Errorf("looked at %d claims, want 101", looks)
	}
}

func TestAPodIsNotTriedBeforeItsClaimExists(t *testing.T) {
	s, now := New(Config{Client: &binding{}, Events: noEvents{}}), time.Unix(1000, 0)
	s.cluster = newCluster(nil, nil)
	d, view := devicesWith(t)
	d.opened.done = true
	s.allocator.devices = d
	waiting := pod("p", "")
	template, made := "t", "p-claim"
	waiting.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r", ResourceClaimTemplateName: &template}}
	s.onPod(nil, waiting, false, now)
	if _, ok := s.queue.pop(now); ok {
		t.Fatal("tried without its claim")
	}
	named := waiting.DeepCopy()
	named.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: &made}}
	s.onPod(waiting, named, false, now)
	if _, ok := s.queue.pop(now); ok {
		t.Fatal("tried before the scheduler sees its claim")
	}
	claim := freeClaim(made)
	yes := true
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: named.Name, UID: named.UID, Controller: &yes}}
	view.set(claim)
	s.queue.wakeUsers(claim, now)
	if p, ok := s.queue.pop(now); !ok || p.attempts != 1 {
		t.Errorf("not tried with its claim: %v", p)
	}
}

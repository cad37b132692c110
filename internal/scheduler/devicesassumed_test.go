package scheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
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
	d := newDevices(t.Context(), nil, func(framework.Events, func(*framework.PodInfo) bool) {})
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

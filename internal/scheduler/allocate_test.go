package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// writer is a client of a View's claims. write answers an update, by the number of earlier updates.
type writer struct {
	client.Interface
	view   *claimsByName
	write  func(ctx context.Context, before int) error
	writes int
}

func (w *writer) Get(_ context.Context, _ schema.GroupVersionResource, namespace, name string, _ metav1.GetOptions, _ ...string) (runtime.Object, error) {
	c, _ := w.view.Get(namespace, name)
	return c, nil
}

func (w *writer) Update(ctx context.Context, _ schema.GroupVersionResource, obj runtime.Object, _ metav1.UpdateOptions, _ ...string) (runtime.Object, error) {
	w.writes++
	if err := w.write(ctx, w.writes-1); err != nil {
		return nil, err
	}
	w.view.set(obj.(*resourcev1.ResourceClaim))
	return obj, nil
}

func conflict() error {
	return apierrors.NewConflict(resourcev1.Resource("resourceclaims"), "c", errors.New("changed"))
}

// allocatedClaim returns a claim with a device that does not meet its binding condition.
func allocatedClaim() *resourcev1.ResourceClaim {
	c := freeClaim("c")
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Driver: "d", Pool: "p", Device: "x", BindingConditions: []string{"ready"}, BindingFailureConditions: []string{"broken"}},
	}}}
	c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d", Pool: "p", Device: "x", Conditions: []metav1.Condition{{Type: "broken", Status: metav1.ConditionTrue}}}}
	return c
}

func TestAllocationIsRetriedAFewTimesAfterConflicts(t *testing.T) {
	for name, tc := range map[string]struct {
		conflicts int
		reserved  bool
	}{
		"two conflicts":       {2, true},
		"nothing but them":    {1 << 30, false},
		"as many as may come": {conflicts.Steps - 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, view := devicesWith(t, allocatedClaim())
			w := &writer{view: view, write: func(_ context.Context, before int) error {
				if before < tc.conflicts {
					return conflict()
				}
				return nil
			}}
			err := (&allocator{client: w, devices: d}).bind(t.Context(), freeClaim("c"), nil, pod("p", ""))
			if (err == nil) != tc.reserved || err != nil && !apierrors.IsConflict(err) {
				t.Error(err)
			}
			if want := min(tc.conflicts+1, conflicts.Steps); w.writes != want {
				t.Errorf("%d writes, want %d", w.writes, want)
			}
		})
	}
}

func TestAFailureToTakeBackDevicesIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		answer error
		says   string // besides the reason for giving up
	}{
		"the devices are released":                          {},
		"a conflict leaves the devices to the other writer": {answer: conflict()},
		"a failed write is part of the error":               {answer: errors.New("no room"), says: "the claim keeps its devices: take the devices from claim c: no room"},
	} {
		t.Run(name, func(t *testing.T) {
			d, view := devicesWith(t, allocatedClaim())
			w := &writer{view: view, write: func(ctx context.Context, _ int) error {
				if _, ends := ctx.Deadline(); !ends {
					t.Error("the write has no deadline")
				}
				return tc.answer
			}}
			err := (&allocator{client: w, devices: d}).waitReady(t.Context(), freeClaim("c"), pod("p", ""), "n")
			if !errors.Is(err, framework.ErrDeviceFailed) || !strings.HasSuffix(err.Error(), tc.says) || tc.says == "" && strings.Contains(err.Error(), "keeps") {
				t.Error(err)
			}
			if now, _ := d.claims.Get("ns", "c"); (now.Status.Allocation == nil) != (tc.answer == nil) {
				t.Errorf("the claim has %+v", now.Status.Allocation)
			}
		})
	}
}

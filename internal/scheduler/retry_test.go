package scheduler

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// lossyClient is a client that carries out all writes, but returns no answer to the first ones.
type lossyClient struct {
	client.Interface
	mu     sync.Mutex // guards the fields below
	misses int
	pod    *corev1.Pod
	claim  *resourcev1.ResourceClaim
	writes int
	wrote  func()
}

var errNoAnswer = errors.New("connection reset by peer")

func (d *lossyClient) answer(obj runtime.Object) (runtime.Object, error) {
	if d.wrote != nil {
		d.wrote()
	}
	d.writes++
	if d.writes <= d.misses {
		return nil, errNoAnswer
	}
	return obj, nil
}

func (d *lossyClient) Get(_ context.Context, res schema.GroupVersionResource, _, _ string, _ metav1.GetOptions, _ ...string) (runtime.Object, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if res == podResource {
		return d.pod, nil
	}
	return d.claim, nil
}

func (d *lossyClient) CreateSub(_ context.Context, res schema.GroupVersionResource, _, name, _ string, obj runtime.Object, _ metav1.CreateOptions) (runtime.Object, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pod.Spec.NodeName != "" {
		return nil, apierrors.NewConflict(res.GroupResource(), name, errors.New("it is assigned to a node already"))
	}
	d.pod = d.pod.DeepCopy()
	d.pod.Spec.NodeName = obj.(*corev1.Binding).Target.Name
	return d.answer(obj)
}

func (d *lossyClient) Update(_ context.Context, _ schema.GroupVersionResource, obj runtime.Object, _ metav1.UpdateOptions, _ ...string) (runtime.Object, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claim = obj.(*resourcev1.ResourceClaim).DeepCopy()
	return d.answer(d.claim)
}

func TestALostAnswerDoesNotFailABinding(t *testing.T) {
	for _, at := range []struct {
		is  string
		err bool
	}{{"", false}, {"elsewhere", true}} {
		c := &lossyClient{misses: 1, pod: pod("p", "")}
		c.pod.Spec.NodeName = at.is
		s := New(Config{Client: c, Events: noEvents{}})
		if err := s.bind(t.Context(), pod("p", ""), "n"); (err != nil) != at.err {
			t.Errorf("a pod on node %q: %v", at.is, err)
		}
	}
}

func TestALostAnswerDoesNotFailAnAllocation(t *testing.T) {
	claim := freeClaim("c")
	claim.ResourceVersion = "1"
	d, views := devicesWith(t, claim)
	c := &lossyClient{misses: 2, claim: claim} // of the finalizer and of the allocation
	c.wrote = func() { views.set(c.claim) }
	a := &allocator{client: c, devices: d}
	allocation := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "d", Pool: "p", Device: "x"}}}}
	d.assume(claim, allocation)
	if err := a.bind(t.Context(), claim, allocation, pod("p", "")); err != nil {
		t.Error(err)
	}
	if now := c.claim.Status; now.Allocation == nil || len(now.ReservedFor) != 1 {
		t.Errorf("the claim has %+v", now)
	}
	other := allocation.DeepCopy()
	other.Devices.Results[0].Device = "y"
	d.assume(claim, other)
	var again decideAgain
	if err := a.bind(t.Context(), claim, other, pod("q", "")); !errors.As(err, &again) {
		t.Errorf("a claim that has other devices: %v", err)
	}
}

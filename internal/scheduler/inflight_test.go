package scheduler

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestForgettingOneAllocationLeavesAnotherOfTheSameClaim(t *testing.T) {
	d := newDevices(t.Context(), nil, nil)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "c"}}
	first, second := &resourcev1.AllocationResult{}, &resourcev1.AllocationResult{}
	d.assume(claim, first)
	d.assume(claim, second)
	d.forget(claim, first)
	if !d.BeingAllocated(claim) {
		t.Error("the end of the first attempt has given the second one's devices away")
	}
	d.forget(claim, second)
	if d.BeingAllocated(claim) {
		t.Error("nobody is allocating it any more")
	}
}

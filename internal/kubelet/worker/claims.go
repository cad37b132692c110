package worker

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	claimhelper "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/knarr-project/knarr/internal/client"
)

// claimsReady prepares the pod's claims. After a failure it records an event.
func (w *Worker) claimsReady(ctx context.Context, pod *corev1.Pod) bool {
	err := w.prepareClaims(ctx, pod)
	if err != nil && ctx.Err() == nil {
		w.event(corev1.EventTypeWarning, "FailedPrepareDynamicResources", "Preparing", "Failed to prepare dynamic resources: %v", err)
	}
	return err == nil
}

// prepareClaims prepares the devices of the pod's ResourceClaims (KEP-4381). This node agent does
// not register drivers of dynamic resources yet, so a pod with allocated devices does not start. It
// must not run without them.
func (w *Worker) prepareClaims(ctx context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		name, mustCheckOwner, err := claimhelper.Name(pod, ref)
		if err != nil {
			return fmt.Errorf("prepare dynamic resources: %w", err)
		}
		if name == nil {
			continue // the pod does not need the claim
		}
		claim, err := client.Get[*resourcev1.ResourceClaim](ctx, w.Client, pod.Namespace, *name)
		if err != nil {
			return fmt.Errorf("prepare dynamic resources: fetch ResourceClaim %s/%s referenced by pod %s: %w", pod.Namespace, *name, pod.Name, err)
		}
		if mustCheckOwner {
			if err := claimhelper.IsForPod(pod, claim, false); err != nil {
				return fmt.Errorf("prepare dynamic resources: %w", err)
			}
		}
		if !claimhelper.IsReservedForPod(pod, claim, false) || claim.Status.Allocation == nil {
			return fmt.Errorf("prepare dynamic resources: pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, claim.Name, claim.UID)
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			return fmt.Errorf("prepare dynamic resources: DRA driver %s is not registered", result.Driver)
		}
	}
	return nil
}

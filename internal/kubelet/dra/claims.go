package dra

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	claimhelper "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/knarr-project/knarr/internal/client"
)

// extended is the name that the pod's generated claim for extended resources has in a podClaim.
const extended = ""

// podClaim is a claim of a pod.
type podClaim struct {
	// name is the claim's name in pod.spec.resourceClaims, or extended.
	name  string
	claim *resourcev1.ResourceClaim
}

// claims reads the pod's claims from the API and checks that the pod may use them.
func claims(ctx context.Context, c client.Interface, pod *corev1.Pod) ([]podClaim, error) {
	var out []podClaim
	add := func(name, object string, mustCheckOwner bool) error {
		claim, err := client.Get[*resourcev1.ResourceClaim](ctx, c, pod.Namespace, object)
		if err != nil {
			return fmt.Errorf("prepare dynamic resources: fetch ResourceClaim %s/%s referenced by pod %s: %w", pod.Namespace, object, pod.Name, err)
		}
		if mustCheckOwner {
			if err := claimhelper.IsForPod(pod, claim, false); err != nil {
				return fmt.Errorf("prepare dynamic resources: %w", err)
			}
		}
		if !claimhelper.IsReservedForPod(pod, claim, false) || claim.Status.Allocation == nil {
			return fmt.Errorf("prepare dynamic resources: pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, claim.Name, claim.UID)
		}
		out = append(out, podClaim{name, claim})
		return nil
	}
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		name, mustCheckOwner, err := claimhelper.Name(pod, ref)
		if err != nil {
			return nil, fmt.Errorf("prepare dynamic resources: %w", err)
		}
		if name == nil {
			continue // the pod does not need the claim
		}
		if err := add(ref.Name, *name, mustCheckOwner); err != nil {
			return nil, err
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		if err := add(extended, s.ResourceClaimName, true); err != nil {
			return nil, err
		}
	}
	return out, nil
}

package scheduler

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// bindExtended creates the claim for a pod's extended resources with its devices, and names it in
// the pod's status, where the kubelet finds it. If the answer to the creation is lost, the next
// attempt finds and deletes the claim.
func (a *allocator) bindExtended(ctx context.Context, own *framework.ExtendedClaim, allocation *resourcev1.AllocationResult, pod *corev1.Pod) error {
	claim := own.Claim.DeepCopy()
	claim.Name, claim.UID = "", ""
	created, err := client.Create(ctx, a.client, claim)
	a.metrics.claimCreated(err)
	if err != nil {
		return fmt.Errorf("create claim for extended resources of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	own.Created = created
	if err := a.bind(ctx, created, allocation, pod); err != nil {
		return err
	}
	a.devices.forget(own.Claim, allocation)
	status := corev1.PodExtendedResourceClaimStatus{ResourceClaimName: created.Name, RequestMappings: own.Mappings}
	if err := patchPodStatus(ctx, a.client, pod, map[string]any{"extendedResourceClaimStatus": status}); err != nil {
		return fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// releaseExtended undoes bindExtended, or what Reserve did before it.
func (a *allocator) releaseExtended(ctx context.Context, own *framework.ExtendedClaim, allocation *resourcev1.AllocationResult) {
	a.devices.forget(own.Claim, allocation)
	if own.Created != nil {
		// If this fails, the next attempt does it.
		_ = a.deleteExtended(ctx, own.Created)
	}
	a.devices.wakePods(framework.ResourceClaimChanged, wantsDevices)
}

// deleteExtended deletes a claim for extended resources together with its devices.
func (a *allocator) deleteExtended(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	err := retry.RetryOnConflict(conflicts, func() error {
		now, err := client.Get[*resourcev1.ResourceClaim](ctx, a.client, claim.Namespace, claim.Name)
		if err != nil || now.UID != claim.UID || !slices.Contains(now.Finalizers, resourcev1.Finalizer) {
			return err
		}
		now = now.DeepCopy()
		now.Finalizers = slices.DeleteFunc(now.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		_, err = client.Update(ctx, a.client, now)
		return err
	})
	if err == nil {
		uid := claim.UID
		err = client.Delete[*resourcev1.ResourceClaim](ctx, a.client, claim.Namespace, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete claim %s for extended resources: %w", claim.Name, err)
	}
	return nil
}

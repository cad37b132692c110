package dra

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// Manager prepares the devices of claims.
type Manager struct{ Client client.Interface }

// Prepare prepares the devices of the pod's claims.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil {
		return nil
	}
	list, err := claims(ctx, m.Client, pod)
	if err != nil {
		return err
	}
	for _, c := range list {
		for _, result := range c.claim.Status.Allocation.Devices.Results {
			return fmt.Errorf("prepare dynamic resources: DRA driver %s is not registered", result.Driver)
		}
	}
	return nil
}

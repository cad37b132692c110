package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

const expandCapability = csispec.NodeServiceCapability_RPC_EXPAND_VOLUME

// mayGrow reports whether the driver can expand the volume while it is mounted.
func (v *csiVolume) mayGrow() bool {
	return v.persistent != nil && v.claim != nil && !v.readOnly && v.driver != nil && v.driver.capabilities[expandCapability]
}

// expand has the driver grow the file system or device on this node, if the claim's status is
// behind the volume's capacity. The resizer of the cluster has grown the volume itself before. Then
// it writes the new capacity into the claim's status.
func (m *Manager) expand(ctx context.Context, v *csiVolume) error {
	if !v.mayGrow() {
		return nil
	}
	want, have := v.persistent.Spec.Capacity[corev1.ResourceStorage], v.claim.Status.Capacity[corev1.ResourceStorage]
	if want.Cmp(have) <= 0 || v.claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizeInfeasible {
		return nil
	}
	if err := m.writeResize(ctx, v.claim, func(s *corev1.PersistentVolumeClaimStatus) { resizeRuns(s) }); err != nil {
		return err
	}
	request := &csispec.NodeExpandVolumeRequest{
		VolumeId: v.handle, VolumePath: v.target, StagingTargetPath: m.stagedAt(v), VolumeCapability: v.capability(),
		CapacityRange: &csispec.CapacityRange{RequiredBytes: want.Value()},
	}
	var err error
	if request.Secrets, err = m.csiSecrets(ctx, v.claimed.NodeExpandSecretRef); err != nil {
		return err
	}
	_, err = v.driver.node.NodeExpandVolume(ctx, request)
	if err != nil {
		infeasible := neverExpands(err)
		m.event(v.pod, corev1.EventTypeWarning, "VolumeResizeFailed", "Resizing", "NodeExpandVolume.NodeExpandVolume failed for volume %q: %v", v.persistent.Name, err)
		now := metav1.NewTime(m.Now())
		problem := m.writeResize(ctx, v.claim, func(s *corev1.PersistentVolumeClaimStatus) { resizeFailed(s, err.Error(), infeasible, now) })
		if problem != nil && ctx.Err() == nil {
			m.Log.Warn("cannot write that a volume was not expanded", "claim", v.claim.Namespace+"/"+v.claim.Name, "error", problem)
		}
		if status.Code(err) == codes.FailedPrecondition || v.data.Published {
			m.Log.Warn("cannot expand a volume; trying again", "claim", v.claim.Namespace+"/"+v.claim.Name, "error", err)
			return nil // the volume is mounted and works with its old size
		}
		return fmt.Errorf("NodeExpandVolume: %w", err)
	}
	if err := m.writeResize(ctx, v.claim, func(s *corev1.PersistentVolumeClaimStatus) { resizeDone(s, want) }); err != nil {
		return err
	}
	m.event(v.pod, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "Resizing", "MountVolume.NodeExpandVolume succeeded for volume %q %s", v.persistent.Name, m.NodeName)
	return nil
}

// neverExpands reports whether another attempt with the same size cannot succeed.
func neverExpands(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return true
	}
	return false
}

// resizeRuns marks the claim's expansion on the node as started.
func resizeRuns(s *corev1.PersistentVolumeClaimStatus) {
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	s.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInProgress
}

// resizeDone records the claim's new capacity and removes all signs of the expansion.
func resizeDone(s *corev1.PersistentVolumeClaimStatus, size resource.Quantity) {
	if s.Capacity == nil {
		s.Capacity = corev1.ResourceList{}
	}
	s.Capacity[corev1.ResourceStorage] = size
	delete(s.AllocatedResourceStatuses, corev1.ResourceStorage)
	s.Conditions = withoutResize(s.Conditions, true)
}

// resizeFailed records why the expansion failed. After an infeasible one, the user must ask for
// another size.
func resizeFailed(s *corev1.PersistentVolumeClaimStatus, message string, infeasible bool, now metav1.Time) {
	if infeasible {
		if s.AllocatedResourceStatuses == nil {
			s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
		}
		s.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInfeasible
	}
	for _, c := range s.Conditions {
		if c.Type == corev1.PersistentVolumeClaimNodeResizeError {
			now = c.LastTransitionTime
		}
	}
	s.Conditions = append(withoutResize(s.Conditions, false), corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, LastTransitionTime: now, Message: message,
	})
}

// withoutResize drops the conditions about an expansion on the node, or about all of the expansion.
func withoutResize(conditions []corev1.PersistentVolumeClaimCondition, all bool) []corev1.PersistentVolumeClaimCondition {
	kept := []corev1.PersistentVolumeClaimCondition{}
	for _, c := range conditions {
		switch c.Type {
		case corev1.PersistentVolumeClaimNodeResizeError:
			continue
		case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimControllerResizeError:
			if all {
				continue
			}
		}
		kept = append(kept, c)
	}
	return kept
}

// writeResize changes the parts of the claim's status that belong to an expansion.
func (m *Manager) writeResize(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaimStatus)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	before := claim.Status
	after := before.DeepCopy()
	change(after)
	fields := map[string]any{}
	if !maps.Equal(before.AllocatedResourceStatuses, after.AllocatedResourceStatuses) {
		fields["allocatedResourceStatuses"] = after.AllocatedResourceStatuses
		if _, found := after.AllocatedResourceStatuses[corev1.ResourceStorage]; !found {
			fields["allocatedResourceStatuses"] = map[corev1.ResourceName]any{corev1.ResourceStorage: nil}
		}
	}
	if want := after.Capacity[corev1.ResourceStorage]; want.Cmp(before.Capacity[corev1.ResourceStorage]) != 0 {
		fields["capacity"] = corev1.ResourceList{corev1.ResourceStorage: want}
	}
	if len(before.Conditions) > 0 || len(after.Conditions) > 0 {
		fields["conditions"] = after.Conditions
	}
	if len(fields) == 0 {
		return nil
	}
	// The version keeps another writer's conditions from being lost.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion}, "status": fields})
	if err != nil {
		return err
	}
	written, err := client.Patch[*corev1.PersistentVolumeClaim](ctx, m.Client, claim.Namespace, claim.Name, types.MergePatchType, patch, "status")
	if err != nil {
		return fmt.Errorf("write the status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	*claim = *written.DeepCopy()
	return nil
}

// event records an event on the pod.
func (m *Manager) event(pod *corev1.Pod, kind, reason, action, note string, args ...any) {
	if m.CSI != nil && m.CSI.Events != nil {
		m.CSI.Events.Eventf(pod, nil, kind, reason, action, note, args...)
	}
}

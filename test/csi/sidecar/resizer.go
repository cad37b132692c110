package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// resizer expands and modifies volumes.
type resizer struct {
	*cluster
	*driver
}

// Resize expands the driver's volumes, and changes their attributes, until ctx ends.
func Resize(ctx context.Context, o Options) error {
	d, err := dial(ctx, o)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := newCluster("external-resizer " + d.name)
	if err != nil {
		return err
	}
	r := &resizer{c, d}
	core := c.informers.Core().V1()
	return c.work(ctx, o.Workers, map[cache.SharedIndexInformer]func(any) []key{
		core.PersistentVolumeClaims().Informer(): keyOf,
		core.PersistentVolumes().Informer(): func(object any) []key {
			if v, ok := object.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef != nil {
				return []key{{v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name}}
			}
			return nil
		},
	}, r.claim)
}

// claim expands and modifies the volume of a claim.
func (r *resizer) claim(ctx context.Context, k key) error {
	claim, err := r.CoreV1().PersistentVolumeClaims(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil {
		return err
	}
	volume, err := r.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || volume.Spec.CSI == nil || volume.Spec.CSI.Driver != r.name {
		return err
	}
	if err := r.modify(ctx, claim, volume); err != nil {
		return err
	}
	return r.expand(ctx, claim, volume)
}

// expand lets the driver make a volume larger, and leaves the rest to the node if the driver needs
// it.
func (r *resizer) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	want, have := *claim.Spec.Resources.Requests.Storage(), *claim.Status.Capacity.Storage()
	state := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	allocated := claim.Status.AllocatedResources[corev1.ResourceStorage]
	switch {
	case want.Cmp(have) <= 0:
		return nil
	case state == corev1.PersistentVolumeClaimNodeResizePending || state == corev1.PersistentVolumeClaimNodeResizeInProgress:
		if allocated.Cmp(want) == 0 {
			return nil // the node's turn
		}
	case state == corev1.PersistentVolumeClaimNodeResizeInfeasible || state == corev1.PersistentVolumeClaimControllerResizeInfeasible:
		if allocated.Cmp(want) == 0 {
			return nil // another attempt would fail as well
		}
	}
	if err := r.status(ctx, claim, func(s *corev1.PersistentVolumeClaimStatus) {
		set(s, want, corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimResizing)
	}); err != nil {
		return err
	}
	r.events.Eventf(claim, corev1.EventTypeNormal, "Resizing", "External resizer is resizing volume %s", volume.Name)
	size, onNode, err := r.grow(ctx, claim, volume, want)
	if err != nil {
		r.events.Eventf(claim, corev1.EventTypeWarning, "VolumeResizeFailed", "resize volume %q by resizer %q failed: %v", volume.Name, r.name, err)
		if final(err) {
			problem := r.status(ctx, claim, func(s *corev1.PersistentVolumeClaimStatus) {
				set(s, want, corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimResizing)
			})
			if problem != nil {
				return problem
			}
		}
		return err
	}
	if volume.Spec.Capacity.Storage().Cmp(size) < 0 {
		if err := r.patchVolume(ctx, volume.Name, map[string]any{"capacity": corev1.ResourceList{corev1.ResourceStorage: size}}); err != nil {
			return err
		}
	}
	if onNode {
		r.events.Eventf(claim, corev1.EventTypeNormal, "FileSystemResizeRequired", "Require file system resize of volume on node")
		return r.status(ctx, claim, func(s *corev1.PersistentVolumeClaimStatus) {
			set(s, want, corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimFileSystemResizePending)
		})
	}
	r.events.Eventf(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	return r.status(ctx, claim, func(s *corev1.PersistentVolumeClaimStatus) {
		s.Capacity[corev1.ResourceStorage] = size
		delete(s.AllocatedResourceStatuses, corev1.ResourceStorage)
		s.Conditions = otherConditions(s.Conditions)
	})
}

// final reports whether another call with the same size cannot succeed.
func final(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.OutOfRange:
		return true
	}
	return false
}

// grow calls the driver. A driver without a controller's part is left to the node.
func (r *resizer) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, want resource.Quantity) (size resource.Quantity, onNode bool, err error) {
	if !r.can(csispec.ControllerServiceCapability_RPC_EXPAND_VOLUME) {
		return want, true, nil
	}
	source := volume.Spec.CSI
	request := &csispec.ControllerExpandVolumeRequest{
		VolumeId: source.VolumeHandle, CapacityRange: &csispec.CapacityRange{RequiredBytes: want.Value()},
		VolumeCapability: capability(volume.Spec.AccessModes, isBlock(volume.Spec.VolumeMode), source.FSType, volume.Spec.MountOptions),
	}
	if request.Secrets, err = r.secret(ctx, source.ControllerExpandSecretRef); err != nil {
		return size, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	response, err := csispec.NewControllerClient(r).ControllerExpandVolume(ctx, request)
	if err != nil {
		return size, false, err
	}
	return *resource.NewQuantity(response.CapacityBytes, resource.BinarySI), response.NodeExpansionRequired, nil
}

// set records the state of an expansion.
func set(s *corev1.PersistentVolumeClaimStatus, size resource.Quantity, state corev1.ClaimResourceStatus, condition corev1.PersistentVolumeClaimConditionType) {
	if s.AllocatedResources == nil {
		s.AllocatedResources = corev1.ResourceList{}
	}
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	s.AllocatedResources[corev1.ResourceStorage] = size
	s.AllocatedResourceStatuses[corev1.ResourceStorage] = state
	s.Conditions = append(otherConditions(s.Conditions), corev1.PersistentVolumeClaimCondition{
		Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
	})
}

func otherConditions(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimResizing || c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
	})
}

// modify gives a volume the parameters of the claim's VolumeAttributesClass.
func (r *resizer) modify(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	name := claim.Spec.VolumeAttributesClassName
	if name == nil || *name == "" || !r.can(csispec.ControllerServiceCapability_RPC_MODIFY_VOLUME) {
		return nil
	}
	if current := claim.Status.CurrentVolumeAttributesClassName; current != nil && *current == *name && claim.Status.ModifyVolumeStatus == nil {
		return nil
	}
	class, err := r.StorageV1().VolumeAttributesClasses().Get(ctx, *name, metav1.GetOptions{})
	if err == nil {
		err = r.checkAttributes(class.Name, class.DriverName)
	}
	if err != nil {
		return fmt.Errorf("modify volume %s: %w", volume.Name, err)
	}
	state := func(now corev1.PersistentVolumeClaimModifyVolumeStatus) func(*corev1.PersistentVolumeClaimStatus) {
		return func(s *corev1.PersistentVolumeClaimStatus) {
			s.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: *name, Status: now}
		}
	}
	if err := r.status(ctx, claim, state(corev1.PersistentVolumeClaimModifyVolumeInProgress)); err != nil {
		return err
	}
	calling, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	request := &csispec.ControllerModifyVolumeRequest{VolumeId: volume.Spec.CSI.VolumeHandle, MutableParameters: class.Parameters}
	if _, err := csispec.NewControllerClient(r).ControllerModifyVolume(calling, request); err != nil {
		r.events.Eventf(claim, corev1.EventTypeWarning, "VolumeModifyFailed", "%v", err)
		if final(err) {
			if problem := r.status(ctx, claim, state(corev1.PersistentVolumeClaimModifyVolumeInfeasible)); problem != nil {
				return problem
			}
		}
		return err
	}
	if err := r.patchVolume(ctx, volume.Name, map[string]any{"volumeAttributesClassName": *name}); err != nil {
		return err
	}
	r.events.Eventf(claim, corev1.EventTypeNormal, "VolumeModifySuccessful", "external resizer modified volume %s with vac %s successfully", claim.Name, *name)
	return r.status(ctx, claim, func(s *corev1.PersistentVolumeClaimStatus) {
		s.CurrentVolumeAttributesClassName, s.ModifyVolumeStatus = name, nil
	})
}

func (r *resizer) patchVolume(ctx context.Context, name string, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	_, err = r.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// status changes the claim's status. The patch fails if the claim has changed meanwhile; then the
// claim's event queues it again.
func (r *resizer) status(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaimStatus)) error {
	wanted := claim.Status.DeepCopy()
	change(wanted)
	// A merge patch deletes a field by null, and so needs the fields that are gone.
	fields := map[string]any{
		"capacity": wanted.Capacity, "allocatedResources": wanted.AllocatedResources, "conditions": wanted.Conditions,
		"allocatedResourceStatuses": nil, "modifyVolumeStatus": wanted.ModifyVolumeStatus, "currentVolumeAttributesClassName": wanted.CurrentVolumeAttributesClassName,
	}
	if len(wanted.AllocatedResourceStatuses) > 0 {
		fields["allocatedResourceStatuses"] = wanted.AllocatedResourceStatuses
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion}, "status": fields})
	if err != nil {
		return err
	}
	updated, err := r.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		*claim = *updated
	}
	return err
}

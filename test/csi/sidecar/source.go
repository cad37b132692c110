package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	everything       = labels.Everything()
	snapshots        = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	snapshotContents = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
)

// source returns the volume or snapshot that a claim's volume begins with.
func (p *provisioner) source(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*csispec.VolumeContentSource, error) {
	origin := claim.Spec.DataSource
	switch {
	case origin == nil && claim.Spec.DataSourceRef == nil:
		return nil, nil
	case origin == nil:
		return nil, fmt.Errorf("dataSourceRef is a %s: want a PersistentVolumeClaim or a VolumeSnapshot", claim.Spec.DataSourceRef.Kind)
	case origin.Kind == "PersistentVolumeClaim":
		return p.clone(ctx, claim, origin.Name)
	case origin.Kind == "VolumeSnapshot" && origin.APIGroup != nil && *origin.APIGroup == snapshots.Group:
		return p.restore(ctx, claim, origin.Name)
	}
	return nil, fmt.Errorf("dataSource is a %s: want a PersistentVolumeClaim or a VolumeSnapshot", origin.Kind)
}

func (p *provisioner) clone(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) (*csispec.VolumeContentSource, error) {
	other, err := p.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if other.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("the source claim %s is not bound", name)
	}
	volume, err := p.CoreV1().PersistentVolumes().Get(ctx, other.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != p.name {
		return nil, fmt.Errorf("the source claim %s has a volume of another driver", name)
	}
	if other.Spec.Resources.Requests.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) > 0 {
		return nil, fmt.Errorf("the claim requests less than its source %s", name)
	}
	return &csispec.VolumeContentSource{Type: &csispec.VolumeContentSource_Volume{
		Volume: &csispec.VolumeContentSource_VolumeSource{VolumeId: volume.Spec.CSI.VolumeHandle},
	}}, nil
}

func (p *provisioner) restore(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) (*csispec.VolumeContentSource, error) {
	snapshot, err := p.dynamic.Resource(snapshots).Namespace(claim.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	ready, _, _ := unstructured.NestedBool(snapshot.Object, "status", "readyToUse")
	bound, _, _ := unstructured.NestedString(snapshot.Object, "status", "boundVolumeSnapshotContentName")
	if !ready || bound == "" {
		return nil, fmt.Errorf("snapshot %s is not ready", name)
	}
	content, err := p.dynamic.Resource(snapshotContents).Get(ctx, bound, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	by, _, _ := unstructured.NestedString(content.Object, "spec", "driver")
	handle, _, _ := unstructured.NestedString(content.Object, "status", "snapshotHandle")
	if by != p.name || handle == "" {
		return nil, fmt.Errorf("snapshot %s is of driver %q, and has the handle %q", name, by, handle)
	}
	return &csispec.VolumeContentSource{Type: &csispec.VolumeContentSource_Snapshot{
		Snapshot: &csispec.VolumeContentSource_SnapshotSource{SnapshotId: handle},
	}}, nil
}

// attributes returns the parameters of a VolumeAttributesClass.
func (p *provisioner) attributes(ctx context.Context, name *string) (map[string]string, error) {
	if name == nil || *name == "" {
		return nil, nil
	}
	class, err := p.StorageV1().VolumeAttributesClasses().Get(ctx, *name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return class.Parameters, p.checkAttributes(class.Name, class.DriverName)
}

// finalize adds or removes the finalizer of a volume.
func (p *provisioner) finalize(ctx context.Context, volume *corev1.PersistentVolume, keep bool) error {
	current, err := p.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	finalizers := slices.DeleteFunc(slices.Clone(current.Finalizers), func(f string) bool { return f == deletionFinalizer })
	if keep {
		finalizers = append(finalizers, deletionFinalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": current.ResourceVersion, "finalizers": finalizers}})
	if err != nil {
		return err
	}
	_, err = p.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

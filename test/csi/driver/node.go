package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inlineSize is the size of an ephemeral volume.
const inlineSize = 100 << 20

// NodeGetInfo returns the node's id, limit and topology.
func (d *Driver) NodeGetInfo(context.Context, *csispec.NodeGetInfoRequest) (*csispec.NodeGetInfoResponse, error) {
	response := &csispec.NodeGetInfoResponse{NodeId: d.NodeID, MaxVolumesPerNode: d.MaxVolumes}
	if d.Topology {
		response.AccessibleTopology = d.topology()[0]
	}
	return response, nil
}

// NodeGetCapabilities returns what the node can do.
func (d *Driver) NodeGetCapabilities(context.Context, *csispec.NodeGetCapabilitiesRequest) (*csispec.NodeGetCapabilitiesResponse, error) {
	kinds := []csispec.NodeServiceCapability_RPC_Type{
		csispec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csispec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csispec.NodeServiceCapability_RPC_VOLUME_CONDITION, csispec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.Expansion {
		kinds = append(kinds, csispec.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	response := &csispec.NodeGetCapabilitiesResponse{}
	for _, kind := range kinds {
		response.Capabilities = append(response.Capabilities, &csispec.NodeServiceCapability{
			Type: &csispec.NodeServiceCapability_Rpc{Rpc: &csispec.NodeServiceCapability_RPC{Type: kind}},
		})
	}
	return response, nil
}

// with adds a path to a list.
func with(paths []string, path string) []string {
	if slices.Contains(paths, path) {
		return paths
	}
	return append(paths, path)
}

func without(paths []string, path string) []string {
	return slices.DeleteFunc(paths, func(p string) bool { return p == path })
}

// NodeStageVolume prepares a volume. A block volume gets its loop device.
func (d *Driver) NodeStageVolume(_ context.Context, r *csispec.NodeStageVolumeRequest) (*csispec.NodeStageVolumeResponse, error) {
	switch {
	case r.VolumeId == "":
		return nil, missing("volume_id")
	case r.StagingTargetPath == "":
		return nil, missing("staging_target_path")
	case r.VolumeCapability == nil:
		return nil, missing("volume_capability")
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return nil, notFound("volume", r.VolumeId)
	}
	if d.CheckLifecycle && d.Attach && v.Attached == "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not attached", v.ID)
	}
	if len(v.Staged) > 0 && !slices.Contains(v.Staged, r.StagingTargetPath) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is staged at %q", v.ID, v.Staged)
	}
	if v.Block {
		if _, err := d.attachLoop(v.ID); err != nil {
			return nil, failed(err)
		}
	}
	v.Staged = with(v.Staged, r.StagingTargetPath)
	return &csispec.NodeStageVolumeResponse{}, failed(d.save())
}

// NodeUnstageVolume reverts NodeStageVolume.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *csispec.NodeUnstageVolumeRequest) (*csispec.NodeUnstageVolumeResponse, error) {
	switch {
	case r.VolumeId == "":
		return nil, missing("volume_id")
	case r.StagingTargetPath == "":
		return nil, missing("staging_target_path")
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return nil, notFound("volume", r.VolumeId)
	}
	if d.CheckLifecycle && len(v.Published) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is still published at %q", v.ID, v.Published)
	}
	d.detachLoop(v.ID)
	v.Staged = without(v.Staged, r.StagingTargetPath)
	return &csispec.NodeUnstageVolumeResponse{}, failed(d.save())
}

// NodePublishVolume mounts a volume for a pod.
func (d *Driver) NodePublishVolume(_ context.Context, r *csispec.NodePublishVolumeRequest) (*csispec.NodePublishVolumeResponse, error) {
	switch {
	case r.VolumeId == "":
		return nil, missing("volume_id")
	case r.TargetPath == "":
		return nil, missing("target_path")
	case r.VolumeCapability == nil:
		return nil, missing("volume_capability")
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil && r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" {
		if r.VolumeCapability.GetMount() == nil {
			return nil, status.Error(codes.InvalidArgument, "volume_capability: an ephemeral volume has a file system")
		}
		v = &volume{ID: r.VolumeId, Name: "ephemeral-" + r.VolumeId, Size: inlineSize, Ephemeral: true, Created: time.Now()}
		if err := d.make(v, ""); err != nil {
			return nil, failed(err)
		}
	}
	switch {
	case v == nil:
		return nil, notFound("volume", r.VolumeId)
	case v.Block != (r.VolumeCapability.GetBlock() != nil):
		return nil, status.Error(codes.InvalidArgument, "volume_capability: the volume is of another kind")
	case d.CheckLifecycle && !v.Ephemeral && !slices.Contains(v.Staged, r.StagingTargetPath):
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %q, but at %q", v.ID, r.StagingTargetPath, v.Staged)
	}
	if err := d.publish(v, r.TargetPath, r.Readonly); err != nil {
		return nil, failed(err)
	}
	v.Published = with(v.Published, r.TargetPath)
	return &csispec.NodePublishVolumeResponse{}, failed(d.save())
}

// publish mounts the volume's folder or device at the target.
func (d *Driver) publish(v *volume, target string, readOnly bool) error {
	if done, err := mounted(target); err != nil || done {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	source := d.contentOf(v.ID)
	if v.Block {
		l, err := d.attachLoop(v.ID)
		if err != nil {
			return err
		}
		source = l.path
		file, err := os.OpenFile(target, os.O_CREATE, 0o660)
		if err != nil {
			return err
		}
		file.Close()
	} else if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return bind(source, target, readOnly)
}

// NodeUnpublishVolume unmounts a volume and removes the target. An ephemeral volume is deleted.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csispec.NodeUnpublishVolumeRequest) (*csispec.NodeUnpublishVolumeResponse, error) {
	switch {
	case r.VolumeId == "":
		return nil, missing("volume_id")
	case r.TargetPath == "":
		return nil, missing("target_path")
	}
	if err := unbind(r.TargetPath); err != nil {
		return nil, failed(err)
	}
	if still, err := mounted(r.TargetPath); err != nil || still {
		return nil, failed(errors.Join(err, fmt.Errorf("%s is still mounted", r.TargetPath)))
	}
	// Without mount propagation, pods write into the folder itself.
	if err := os.RemoveAll(r.TargetPath); err != nil {
		return nil, failed(err)
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return &csispec.NodeUnpublishVolumeResponse{}, nil
	}
	v.Published = without(v.Published, r.TargetPath)
	if v.Ephemeral && len(v.Published) == 0 {
		return &csispec.NodeUnpublishVolumeResponse{}, failed(d.remove(v))
	}
	return &csispec.NodeUnpublishVolumeResponse{}, failed(d.save())
}

// at returns a volume that is in use at the path.
func (d *Driver) at(id, path string) (*volume, error) {
	switch {
	case id == "":
		return nil, missing("volume_id")
	case path == "":
		return nil, missing("volume_path")
	}
	v := d.state.Volumes[id]
	if v == nil {
		return nil, notFound("volume", id)
	}
	if !slices.Contains(v.Published, path) && !slices.Contains(v.Staged, path) {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", id, path)
	}
	return v, nil
}

// NodeGetVolumeStats returns the usage and condition of a volume.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *csispec.NodeGetVolumeStatsRequest) (*csispec.NodeGetVolumeStatsResponse, error) {
	v, err := d.at(r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	response := &csispec.NodeGetVolumeStatsResponse{VolumeCondition: d.condition(v)}
	if v.Block {
		response.Usage = []*csispec.VolumeUsage{{Unit: csispec.VolumeUsage_BYTES, Total: v.Size}}
		return response, nil
	}
	if response.VolumeCondition.Abnormal {
		response.Usage = []*csispec.VolumeUsage{{Unit: csispec.VolumeUsage_BYTES, Total: v.Size, Available: v.Size}}
		return response, nil
	}
	bytes, files, err := usage(d.contentOf(v.ID))
	if err != nil {
		return nil, failed(err)
	}
	const inodes = 1 << 20
	response.Usage = []*csispec.VolumeUsage{
		{Unit: csispec.VolumeUsage_BYTES, Total: v.Size, Used: bytes, Available: max(0, v.Size-bytes)},
		{Unit: csispec.VolumeUsage_INODES, Total: inodes, Used: files, Available: max(0, inodes-files)},
	}
	return response, nil
}

// NodeExpandVolume lets the node see the new size of a volume.
func (d *Driver) NodeExpandVolume(_ context.Context, r *csispec.NodeExpandVolumeRequest) (*csispec.NodeExpandVolumeResponse, error) {
	v, err := d.at(r.VolumeId, r.VolumePath)
	if err != nil {
		return nil, err
	}
	if l := d.loops[v.ID]; l != nil {
		if err := l.grow(); err != nil {
			return nil, failed(err)
		}
	}
	return &csispec.NodeExpandVolumeResponse{CapacityBytes: v.Size}, nil
}

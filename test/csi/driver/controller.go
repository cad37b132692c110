package driver

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	minSize = 1 << 20
	// maxSize limits one volume.
	maxSize = 1 << 40
)

// missing returns the error of a request without a required field.
func missing(field string) error {
	return status.Errorf(codes.InvalidArgument, "%s is empty", field)
}

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %s does not exist", what, id)
}

// failed returns an error of this machine.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Internal, err.Error())
}

// ControllerGetCapabilities returns what the controller can do.
func (d *Driver) ControllerGetCapabilities(context.Context, *csispec.ControllerGetCapabilitiesRequest) (*csispec.ControllerGetCapabilitiesResponse, error) {
	kinds := []csispec.ControllerServiceCapability_RPC_Type{
		csispec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csispec.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csispec.ControllerServiceCapability_RPC_GET_CAPACITY, csispec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csispec.ControllerServiceCapability_RPC_LIST_SNAPSHOTS, csispec.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csispec.ControllerServiceCapability_RPC_GET_VOLUME, csispec.ControllerServiceCapability_RPC_VOLUME_CONDITION,
		csispec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.Attach {
		kinds = append(kinds, csispec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME, csispec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	if d.Expansion {
		kinds = append(kinds, csispec.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	}
	if d.Modify {
		kinds = append(kinds, csispec.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
	response := &csispec.ControllerGetCapabilitiesResponse{}
	for _, kind := range kinds {
		response.Capabilities = append(response.Capabilities, &csispec.ControllerServiceCapability{
			Type: &csispec.ControllerServiceCapability_Rpc{Rpc: &csispec.ControllerServiceCapability_RPC{Type: kind}},
		})
	}
	return response, nil
}

// blockOf reports whether the capabilities describe a block volume.
func blockOf(capabilities []*csispec.VolumeCapability) (block bool, err error) {
	for i, c := range capabilities {
		if c.GetBlock() == nil && c.GetMount() == nil {
			return false, missing("access_type of a volume capability")
		}
		if this := c.GetBlock() != nil; i > 0 && this != block {
			return false, status.Error(codes.InvalidArgument, "volume_capabilities has block and mount: want one of them")
		}
		block = c.GetBlock() != nil
	}
	return block, nil
}

// sizeOf chooses the size of a volume.
func sizeOf(r *csispec.CapacityRange, least int64) (int64, error) {
	size := max(r.GetRequiredBytes(), least, minSize)
	if limit := r.GetLimitBytes(); limit > 0 && size > limit || size > maxSize {
		return 0, status.Errorf(codes.OutOfRange, "capacity_range: %d bytes are needed, and at most %d allowed", size, min(max(limit, 0), maxSize))
	}
	return size, nil
}

// mutable returns an error if a parameter must not change.
func (d *Driver) mutable(parameters map[string]string) error {
	if len(parameters) > 0 && !d.Modify {
		return status.Error(codes.InvalidArgument, "mutable_parameters: this driver was started without --enable-controller-modify-volume")
	}
	for name := range parameters {
		if len(d.Mutable) > 0 && !slices.Contains(d.Mutable, name) {
			return status.Errorf(codes.InvalidArgument, "mutable_parameters has %q: want one of %v", name, d.Mutable)
		}
	}
	return nil
}

// CreateVolume creates an empty volume, or one from a snapshot or a volume.
func (d *Driver) CreateVolume(_ context.Context, r *csispec.CreateVolumeRequest) (*csispec.CreateVolumeResponse, error) {
	if r.Name == "" {
		return nil, missing("name")
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, missing("volume_capabilities")
	}
	block, err := blockOf(r.VolumeCapabilities)
	if err != nil {
		return nil, err
	}
	if err := d.mutable(r.MutableParameters); err != nil {
		return nil, err
	}
	for _, v := range d.state.Volumes {
		if v.Name != r.Name {
			continue
		}
		if v.Block != block || v.Size < r.CapacityRange.GetRequiredBytes() || r.CapacityRange.GetLimitBytes() > 0 && v.Size > r.CapacityRange.GetLimitBytes() {
			return nil, status.Errorf(codes.AlreadyExists, "a volume %s of another size or kind exists", r.Name)
		}
		return &csispec.CreateVolumeResponse{Volume: d.describe(v, r)}, nil
	}
	v := &volume{ID: newID(), Name: r.Name, Block: block, Created: time.Now(), Parameters: maps.Clone(r.MutableParameters)}
	source, least, err := d.sourceOf(v, r.VolumeContentSource)
	if err != nil {
		return nil, err
	}
	if v.Size, err = sizeOf(r.CapacityRange, least); err != nil {
		return nil, err
	}
	if d.used()+v.Size > d.Capacity {
		return nil, status.Errorf(codes.ResourceExhausted, "the volume needs %d bytes, and %d are free", v.Size, d.Capacity-d.used())
	}
	if err := d.make(v, source); err != nil {
		return nil, failed(err)
	}
	return &csispec.CreateVolumeResponse{Volume: d.describe(v, r)}, nil
}

// sourceOf returns the path of the content that a volume begins with, and its size.
func (d *Driver) sourceOf(v *volume, source *csispec.VolumeContentSource) (path string, size int64, err error) {
	switch {
	case source.GetSnapshot() != nil:
		s := d.state.Snapshots[source.GetSnapshot().SnapshotId]
		if s == nil {
			return "", 0, notFound("snapshot", source.GetSnapshot().SnapshotId)
		}
		if s.Block != v.Block {
			return "", 0, status.Error(codes.InvalidArgument, "volume_capabilities: the snapshot is of a volume of another kind")
		}
		v.SourceSnapshot = s.ID
		return d.copyOf(s.ID), s.Size, nil
	case source.GetVolume() != nil:
		o := d.state.Volumes[source.GetVolume().VolumeId]
		if o == nil {
			return "", 0, notFound("volume", source.GetVolume().VolumeId)
		}
		if o.Block != v.Block {
			return "", 0, status.Error(codes.InvalidArgument, "volume_capabilities: the source is a volume of another kind")
		}
		v.SourceVolume = o.ID
		return d.contentOf(o.ID), o.Size, nil
	}
	return "", 0, nil
}

func (d *Driver) topology() []*csispec.Topology {
	if !d.Topology {
		return nil
	}
	return []*csispec.Topology{{Segments: map[string]string{topologyKey: d.NodeID}}}
}

func (d *Driver) describe(v *volume, r *csispec.CreateVolumeRequest) *csispec.Volume {
	out := &csispec.Volume{VolumeId: v.ID, CapacityBytes: v.Size, AccessibleTopology: d.topology()}
	if r != nil {
		out.VolumeContext, out.ContentSource = r.Parameters, r.VolumeContentSource
	}
	return out
}

// DeleteVolume deletes a volume that is not in use.
func (d *Driver) DeleteVolume(_ context.Context, r *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
	if r.VolumeId == "" {
		return nil, missing("volume_id")
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return &csispec.DeleteVolumeResponse{}, nil
	}
	if d.CheckLifecycle && (v.Attached != "" || len(v.Staged)+len(v.Published) > 0) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is in use: attached to %q, staged at %q, published at %q", v.ID, v.Attached, v.Staged, v.Published)
	}
	return &csispec.DeleteVolumeResponse{}, failed(d.remove(v))
}

// ValidateVolumeCapabilities confirms capabilities of the volume's kind.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, r *csispec.ValidateVolumeCapabilitiesRequest) (*csispec.ValidateVolumeCapabilitiesResponse, error) {
	if r.VolumeId == "" {
		return nil, missing("volume_id")
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, missing("volume_capabilities")
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return nil, notFound("volume", r.VolumeId)
	}
	if block, err := blockOf(r.VolumeCapabilities); err != nil || block != v.Block {
		return &csispec.ValidateVolumeCapabilitiesResponse{Message: "the volume is of another kind"}, err
	}
	return &csispec.ValidateVolumeCapabilitiesResponse{Confirmed: &csispec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.VolumeContext, VolumeCapabilities: r.VolumeCapabilities, Parameters: r.Parameters,
	}}, nil
}

// ControllerPublishVolume attaches a volume to the node.
func (d *Driver) ControllerPublishVolume(_ context.Context, r *csispec.ControllerPublishVolumeRequest) (*csispec.ControllerPublishVolumeResponse, error) {
	switch {
	case r.VolumeId == "":
		return nil, missing("volume_id")
	case r.NodeId == "":
		return nil, missing("node_id")
	case r.VolumeCapability == nil:
		return nil, missing("volume_capability")
	}
	v := d.state.Volumes[r.VolumeId]
	switch {
	case v == nil:
		return nil, notFound("volume", r.VolumeId)
	case r.NodeId != d.NodeID:
		return nil, notFound("node", r.NodeId)
	case v.Attached != "" && v.ReadOnly != r.Readonly:
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is attached with readonly=%t", v.ID, v.ReadOnly)
	}
	attached := 0
	for _, other := range d.state.Volumes {
		if other.Attached != "" && other != v {
			attached++
		}
	}
	if d.MaxVolumes > 0 && int64(attached) >= d.MaxVolumes {
		return nil, status.Errorf(codes.ResourceExhausted, "node %s has %d volumes, and may have %d", d.NodeID, attached, d.MaxVolumes)
	}
	v.Attached, v.ReadOnly = r.NodeId, r.Readonly
	return &csispec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"readonly": strconv.FormatBool(r.Readonly)}}, failed(d.save())
}

// ControllerUnpublishVolume detaches a volume.
func (d *Driver) ControllerUnpublishVolume(_ context.Context, r *csispec.ControllerUnpublishVolumeRequest) (*csispec.ControllerUnpublishVolumeResponse, error) {
	if r.VolumeId == "" {
		return nil, missing("volume_id")
	}
	if r.NodeId != "" && r.NodeId != d.NodeID {
		return nil, notFound("node", r.NodeId)
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return &csispec.ControllerUnpublishVolumeResponse{}, nil
	}
	if d.CheckLifecycle && len(v.Staged)+len(v.Published) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is still staged at %q and published at %q", v.ID, v.Staged, v.Published)
	}
	v.Attached, v.ReadOnly = "", false
	return &csispec.ControllerUnpublishVolumeResponse{}, failed(d.save())
}

// page returns a part of a list, and the token of the next part.
func page[T any](all []T, token string, entries int32) ([]T, string, error) {
	start := 0
	if token != "" {
		var err error
		if start, err = strconv.Atoi(token); err != nil || start < 0 || start > len(all) {
			return nil, "", status.Errorf(codes.Aborted, "starting_token %q is not one of this list", token)
		}
	}
	if entries < 0 {
		return nil, "", status.Errorf(codes.InvalidArgument, "max_entries is %d: want 0 or more", entries)
	}
	end := len(all)
	if entries > 0 {
		end = min(end, start+int(entries))
	}
	next := ""
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	return all[start:end], next, nil
}

// condition says whether the volume's content is there.
func (d *Driver) condition(v *volume) *csispec.VolumeCondition {
	if _, err := os.Lstat(d.contentOf(v.ID)); err != nil {
		return &csispec.VolumeCondition{Abnormal: true, Message: "the content of the volume is lost: " + err.Error()}
	}
	return &csispec.VolumeCondition{Message: "the volume is healthy"}
}

func nodesOf(v *volume) []string {
	if v.Attached == "" {
		return nil
	}
	return []string{v.Attached}
}

// ListVolumes lists the volumes by id.
func (d *Driver) ListVolumes(_ context.Context, r *csispec.ListVolumesRequest) (*csispec.ListVolumesResponse, error) {
	part, next, err := page(sorted(d.state.Volumes), r.StartingToken, r.MaxEntries)
	if err != nil {
		return nil, err
	}
	response := &csispec.ListVolumesResponse{NextToken: next}
	for _, v := range part {
		response.Entries = append(response.Entries, &csispec.ListVolumesResponse_Entry{
			Volume: d.describe(v, nil),
			Status: &csispec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodesOf(v), VolumeCondition: d.condition(v)},
		})
	}
	return response, nil
}

// ControllerGetVolume returns one volume.
func (d *Driver) ControllerGetVolume(_ context.Context, r *csispec.ControllerGetVolumeRequest) (*csispec.ControllerGetVolumeResponse, error) {
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return nil, notFound("volume", r.VolumeId)
	}
	return &csispec.ControllerGetVolumeResponse{
		Volume: d.describe(v, nil),
		Status: &csispec.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodesOf(v), VolumeCondition: d.condition(v)},
	}, nil
}

// GetCapacity returns the free bytes.
func (d *Driver) GetCapacity(_ context.Context, r *csispec.GetCapacityRequest) (*csispec.GetCapacityResponse, error) {
	if node, found := r.AccessibleTopology.GetSegments()[topologyKey]; found && node != d.NodeID {
		return &csispec.GetCapacityResponse{}, nil
	}
	return &csispec.GetCapacityResponse{AvailableCapacity: max(0, d.Capacity-d.used())}, nil
}

// ControllerExpandVolume makes a volume larger.
func (d *Driver) ControllerExpandVolume(_ context.Context, r *csispec.ControllerExpandVolumeRequest) (*csispec.ControllerExpandVolumeResponse, error) {
	switch {
	case r.VolumeId == "":
		return nil, missing("volume_id")
	case r.CapacityRange == nil:
		return nil, missing("capacity_range")
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return nil, notFound("volume", r.VolumeId)
	}
	size, err := sizeOf(r.CapacityRange, v.Size)
	if err != nil {
		return nil, err
	}
	if d.used()-v.Size+size > d.Capacity {
		return nil, status.Errorf(codes.OutOfRange, "capacity_range: %d bytes are needed, and %d are free", size, d.Capacity-d.used()+v.Size)
	}
	if v.Block {
		if err := os.Truncate(d.contentOf(v.ID), size); err != nil {
			return nil, failed(err)
		}
	}
	v.Size = size
	return &csispec.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: d.NodeExpansion}, failed(d.save())
}

// ControllerModifyVolume changes a volume's parameters.
func (d *Driver) ControllerModifyVolume(_ context.Context, r *csispec.ControllerModifyVolumeRequest) (*csispec.ControllerModifyVolumeResponse, error) {
	if r.VolumeId == "" {
		return nil, missing("volume_id")
	}
	v := d.state.Volumes[r.VolumeId]
	if v == nil {
		return nil, notFound("volume", r.VolumeId)
	}
	if err := d.mutable(r.MutableParameters); err != nil {
		return nil, err
	}
	if v.Parameters == nil {
		v.Parameters = map[string]string{}
	}
	maps.Copy(v.Parameters, r.MutableParameters)
	return &csispec.ControllerModifyVolumeResponse{}, failed(d.save())
}

// CreateSnapshot copies a volume.
func (d *Driver) CreateSnapshot(_ context.Context, r *csispec.CreateSnapshotRequest) (*csispec.CreateSnapshotResponse, error) {
	switch {
	case r.Name == "":
		return nil, missing("name")
	case r.SourceVolumeId == "":
		return nil, missing("source_volume_id")
	}
	for _, s := range d.state.Snapshots {
		if s.Name == r.Name {
			if s.Volume != r.SourceVolumeId {
				return nil, status.Errorf(codes.AlreadyExists, "a snapshot %s of volume %s exists", s.Name, s.Volume)
			}
			return &csispec.CreateSnapshotResponse{Snapshot: s.describe()}, nil
		}
	}
	v := d.state.Volumes[r.SourceVolumeId]
	if v == nil {
		return nil, notFound("volume", r.SourceVolumeId)
	}
	s := &snapshot{ID: newID(), Name: r.Name, Volume: v.ID, Size: v.Size, Block: v.Block, Created: time.Now()}
	if err := copyAll(d.contentOf(v.ID), d.copyOf(s.ID)); err != nil {
		_ = os.RemoveAll(d.copyOf(s.ID))
		return nil, failed(err)
	}
	d.state.Snapshots[s.ID] = s
	return &csispec.CreateSnapshotResponse{Snapshot: s.describe()}, failed(d.save())
}

func (s *snapshot) describe() *csispec.Snapshot {
	return &csispec.Snapshot{SnapshotId: s.ID, SourceVolumeId: s.Volume, SizeBytes: s.Size, CreationTime: timestamppb.New(s.Created), ReadyToUse: true}
}

// DeleteSnapshot deletes a snapshot.
func (d *Driver) DeleteSnapshot(_ context.Context, r *csispec.DeleteSnapshotRequest) (*csispec.DeleteSnapshotResponse, error) {
	if r.SnapshotId == "" {
		return nil, missing("snapshot_id")
	}
	if d.state.Snapshots[r.SnapshotId] == nil {
		return &csispec.DeleteSnapshotResponse{}, nil
	}
	if err := os.RemoveAll(d.copyOf(r.SnapshotId)); err != nil {
		return nil, failed(err)
	}
	delete(d.state.Snapshots, r.SnapshotId)
	return &csispec.DeleteSnapshotResponse{}, failed(d.save())
}

// ListSnapshots lists snapshots by id.
func (d *Driver) ListSnapshots(_ context.Context, r *csispec.ListSnapshotsRequest) (*csispec.ListSnapshotsResponse, error) {
	var all []*snapshot
	for _, s := range sorted(d.state.Snapshots) {
		if (r.SnapshotId == "" || s.ID == r.SnapshotId) && (r.SourceVolumeId == "" || s.Volume == r.SourceVolumeId) {
			all = append(all, s)
		}
	}
	part, next, err := page(all, r.StartingToken, r.MaxEntries)
	if err != nil {
		return nil, err
	}
	response := &csispec.ListSnapshotsResponse{NextToken: next}
	for _, s := range part {
		response.Entries = append(response.Entries, &csispec.ListSnapshotsResponse_Entry{Snapshot: s.describe()})
	}
	return response, nil
}

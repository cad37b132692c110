package volume

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"golang.org/x/sys/unix"
)

// disk is a CSI driver that keeps volumes in folders and records its calls.
type disk struct {
	csispec.UnimplementedNodeServer
	dir, socket string

	mu        sync.Mutex // guards what follows
	calls     []string
	published *csispec.NodePublishVolumeRequest
	stuck     chan struct{} // if not nil, publishing waits for its end
	bare      bool          // it provides a folder without a mount
	device    bool          // it provides a device
	limit     int64         // volumes per node
	expanding error         // the answer to an expansion
	staging   error
	unstaging error
	condition *csispec.VolumeCondition
}

func (d *disk) call(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, name)
}

func (d *disk) NodeGetInfo(context.Context, *csispec.NodeGetInfoRequest) (*csispec.NodeGetInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csispec.NodeGetInfoResponse{NodeId: "id-1", MaxVolumesPerNode: d.limit, AccessibleTopology: &csispec.Topology{Segments: map[string]string{"disk.example.com/zone": "z"}}}, nil
}

func (d *disk) NodeGetCapabilities(context.Context, *csispec.NodeGetCapabilitiesRequest) (*csispec.NodeGetCapabilitiesResponse, error) {
	response := &csispec.NodeGetCapabilitiesResponse{}
	for _, kind := range []csispec.NodeServiceCapability_RPC_Type{stageCapability, expandCapability, statsCapability, conditionCapability} {
		response.Capabilities = append(response.Capabilities, &csispec.NodeServiceCapability{
			Type: &csispec.NodeServiceCapability_Rpc{Rpc: &csispec.NodeServiceCapability_RPC{Type: kind}},
		})
	}
	return response, nil
}

func (d *disk) NodeExpandVolume(_ context.Context, request *csispec.NodeExpandVolumeRequest) (*csispec.NodeExpandVolumeResponse, error) {
	d.call("expand")
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csispec.NodeExpandVolumeResponse{CapacityBytes: request.CapacityRange.RequiredBytes}, d.expanding
}

func (d *disk) NodeGetVolumeStats(context.Context, *csispec.NodeGetVolumeStatsRequest) (*csispec.NodeGetVolumeStatsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csispec.NodeGetVolumeStatsResponse{
		Usage:           []*csispec.VolumeUsage{{Unit: csispec.VolumeUsage_BYTES, Total: 100, Used: 30, Available: 70}},
		VolumeCondition: d.condition,
	}, nil
}

func (d *disk) NodeStageVolume(context.Context, *csispec.NodeStageVolumeRequest) (*csispec.NodeStageVolumeResponse, error) {
	d.call("stage")
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csispec.NodeStageVolumeResponse{}, d.staging
}

func (d *disk) NodeUnstageVolume(context.Context, *csispec.NodeUnstageVolumeRequest) (*csispec.NodeUnstageVolumeResponse, error) {
	d.call("unstage")
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csispec.NodeUnstageVolumeResponse{}, d.unstaging
}

func (d *disk) NodePublishVolume(_ context.Context, request *csispec.NodePublishVolumeRequest) (*csispec.NodePublishVolumeResponse, error) {
	d.call("publish")
	d.mu.Lock()
	d.published = request
	stuck, bare, device := d.stuck, d.bare, d.device
	d.mu.Unlock()
	if stuck != nil {
		<-stuck
		return nil, errors.New("the disk does not answer")
	}
	if device {
		return &csispec.NodePublishVolumeResponse{}, unix.Mknod(request.TargetPath, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0)))
	}
	from := filepath.Join(d.dir, request.VolumeId)
	if err := os.MkdirAll(from, 0o755); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(request.TargetPath, 0o755); err != nil {
		return nil, err
	}
	if bare {
		return &csispec.NodePublishVolumeResponse{}, nil
	}
	return &csispec.NodePublishVolumeResponse{}, unix.Mount(from, request.TargetPath, "", unix.MS_BIND, "")
}

func (d *disk) NodeUnpublishVolume(_ context.Context, request *csispec.NodeUnpublishVolumeRequest) (*csispec.NodeUnpublishVolumeResponse, error) {
	d.call("unpublish")
	err := unix.Unmount(request.TargetPath, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		err = nil // it is not mounted
	}
	return &csispec.NodeUnpublishVolumeResponse{}, err
}

func (d *disk) seen() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.calls, " ")
}

// takeCalls returns the recorded calls and clears them.
func (d *disk) takeCalls() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := strings.Join(d.calls, " ")
	d.calls = nil
	return calls
}

// Methods of the API that only CSI volumes use.

// Patch changes a claim. A patch of a Node is only recorded.
func (c *cluster) Patch(_ context.Context, res schema.GroupVersionResource, namespace, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patched = append(c.patched, string(data))
	key := res.Resource + "/" + namespace + "/" + name
	claim, found := c.objects[key].(*corev1.PersistentVolumeClaim)
	if !found {
		return &corev1.Node{}, nil
	}
	claim = claim.DeepCopy()
	if err := json.Unmarshal(data, claim); err != nil {
		return nil, err
	}
	maps.DeleteFunc(claim.Status.AllocatedResourceStatuses, func(_ corev1.ResourceName, s corev1.ClaimResourceStatus) bool { return s == "" })
	c.objects[key] = claim
	return claim, nil
}

func (c *cluster) Create(_ context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, _ metav1.CreateOptions, _ ...string) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := res.Resource + "/" + namespace + "/" + obj.(metav1.Object).GetName()
	if _, found := c.objects[key]; found {
		return nil, apierrors.NewAlreadyExists(res.GroupResource(), key)
	}
	c.objects[key] = obj
	return obj, nil
}

func (c *cluster) Update(_ context.Context, res schema.GroupVersionResource, obj runtime.Object, _ metav1.UpdateOptions, _ ...string) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	object := obj.(metav1.Object)
	c.objects[res.Resource+"/"+object.GetNamespace()+"/"+object.GetName()] = obj
	return obj, nil
}

// diskSocket is the registration socket of the driver.
const diskSocket = "/registration/disk.sock"

// startDriver serves the driver and registers it.
func startDriver(t *testing.T, b *bench) *disk {
	t.Helper()
	root, err := os.MkdirTemp("", "csi") // short, because the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	b.dir = filepath.Join(root, "pods", "uid-1")
	driver := &disk{dir: filepath.Join(root, "disk"), limit: 7}
	b.cluster.objects["nodes//node-1"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "node-uid"}}
	b.NodeName = "node-1"
	b.CSI = NewCSI(CSIOptions{Client: b.cluster, NodeName: "node-1", RootDir: root, Log: b.Log})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.CSI.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	server := grpc.NewServer()
	csispec.RegisterNodeServer(server, driver)
	t.Cleanup(func() {
		cancel()
		<-done
		server.Stop()
		if err := unmountBelow(root); err != nil {
			t.Error(err)
			return
		}
		os.RemoveAll(root)
	})
	listener, err := net.Listen("unix", filepath.Join(root, "disk.sock"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	driver.socket = listener.Addr().String()
	if err := b.CSI.RegisterDriver(t.Context(), "disk.example.com", driver.socket, diskSocket, []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	return driver
}

func TestACSIVolumeIsStagedOncePublishedPerPodAndUnstagedAfterTheLast(t *testing.T) {
	b := newBench(t)
	driver := startDriver(t, b)
	node := b.cluster.objects["csinodes//node-1"].(*storagev1.CSINode)
	if got := node.Spec.Drivers; len(got) != 1 || got[0].NodeID != "id-1" || *got[0].Allocatable.Count != 7 || !slices.Equal(got[0].TopologyKeys, []string{"disk.example.com/zone"}) {
		t.Errorf("CSINode has %+v", got)
	}
	if want := `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"disk.example.com\":\"id-1\"}"},"labels":{"disk.example.com/zone":"z"}}}`; len(b.cluster.patched) != 1 || b.cluster.patched[0] != want {
		t.Errorf("the Node is patched by %q", b.cluster.patched)
	}
	b.cluster.objects["csidrivers//disk.example.com"] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		AttachRequired: ptr.To(false), PodInfoOnMount: ptr.To(true), FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy), TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}},
	}}
	b.cluster.put("persistentvolumeclaims", "claim", &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: "claim-uid"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	})
	b.cluster.objects["persistentvolumes//pv"] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{UID: "claim-uid"}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "vol-1", VolumeAttributes: map[string]string{"a": "b"}}},
	}}
	first := pod(volume("db", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}))
	first.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To(int64(2000))}
	point := b.mount(first)["db"]
	if want := filepath.Join(b.dir, "volumes/kubernetes.io~csi/pv/mount"); point.HostPath != want {
		t.Errorf("it is at %s, want %s", point.HostPath, want)
	}
	if _, stat := perm(t, point.HostPath); stat.Gid != 2000 {
		t.Errorf("it belongs to group %d, want 2000", stat.Gid)
	}
	attributes := driver.published.VolumeContext
	if attributes["a"] != "b" || attributes["csi.storage.k8s.io/pod.name"] != "web" || attributes["csi.storage.k8s.io/serviceAccount.tokens"] != `{"vault":{"token":"robot-1"}}` {
		t.Errorf("the driver got %v", attributes)
	}
	b.mount(first) // a second mount keeps the first
	second := first.DeepCopy()
	second.UID = "uid-2"
	secondDir := filepath.Join(filepath.Dir(b.dir), "uid-2")
	if _, err := b.Mount(t.Context(), second, secondDir); err != nil {
		t.Fatal(err)
	}
	if got, want := driver.takeCalls(), "stage publish stage publish"; got != want {
		t.Errorf("mounting called the driver with %q, want %q", got, want)
	}
	if got := b.CSI.VolumesInUse(); len(got) > 0 {
		t.Errorf("volumes that are not attached are in use: %v", got)
	}
	// A new process unmounts: it only knows what is on disk.
	other := New(Options{Client: b.cluster, CSI: b.CSI})
	if err := other.Unmount(t.Context(), first.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	if got, want := driver.takeCalls(), "unpublish"; got != want {
		t.Errorf("unmounting the first pod called the driver with %q, want %q", got, want)
	}
	if err := other.Unmount(t.Context(), second.UID, secondDir); err != nil {
		t.Fatal(err)
	}
	if got, want := driver.takeCalls(), "unpublish unstage"; got != want {
		t.Errorf("unmounting the last pod called the driver with %q, want %q", got, want)
	}
	count := func() int {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		return len(b.cluster.objects["csinodes//node-1"].(*storagev1.CSINode).Spec.Drivers)
	}
	b.CSI.DeregisterDriver(t.Context(), "disk.example.com", "/registration/older.sock")
	if count() != 1 {
		t.Error("an older socket's end removes the driver")
	}
	stopping, stop := context.WithCancel(t.Context())
	stop()
	b.CSI.DeregisterDriver(stopping, "disk.example.com", diskSocket)
	if count() != 1 {
		t.Error("the CSINode loses the driver when the node agent stops")
	}
	b.CSI.removeGone(t.Context())
	if count() != 0 {
		t.Error("the CSINode keeps a driver that is gone")
	}
}

func TestInlineCSIVolumesNeedADriverThatAllowsThem(t *testing.T) {
	b := newBench(t)
	driver := startDriver(t, b)
	p := pod(volume("scratch", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "disk.example.com"}}))
	if _, err := b.Mount(t.Context(), p, b.dir); err == nil || !strings.Contains(err.Error(), "Ephemeral") {
		t.Errorf("error is %v", err)
	}
	b.cluster.objects["csidrivers//disk.example.com"] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PodInfoOnMount: ptr.To(true), VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}}
	b.mount(p)
	if !strings.HasPrefix(driver.published.VolumeId, "csi-") || driver.published.VolumeContext["csi.storage.k8s.io/ephemeral"] != "true" {
		t.Errorf("the driver got %v", driver.published)
	}
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	if got, want := driver.takeCalls(), "publish unpublish"; got != want {
		t.Errorf("calls are %q, want %q", got, want)
	}
	missing := pod(volume("x", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "no.example.com"}}))
	if _, err := b.Mount(t.Context(), missing, b.dir); err == nil || !strings.Contains(err.Error(), "driver name no.example.com not found in the list of registered CSI drivers") {
		t.Errorf("error is %v", err)
	}
}

package volume

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// withDisk gives the bench a driver and a pod with a claim of 1 GiB at the driver.
func withDisk(t *testing.T, spec storagev1.CSIDriverSpec) (*bench, *disk, *corev1.Pod) {
	t.Helper()
	b := newBench(t)
	driver := startDriver(t, b)
	spec.AttachRequired = ptr.To(false)
	b.cluster.objects["csidrivers//disk.example.com"] = &storagev1.CSIDriver{Spec: spec}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	b.cluster.put("persistentvolumeclaims", "claim", &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "claim-uid"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size},
	})
	b.cluster.objects["persistentvolumes//pv"] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{UID: "claim-uid"}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: size,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "vol-1"}},
	}}
	return b, driver, pod(volume("db", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}))
}

// grow sets the capacity of the volume, as a resizer does.
func (b *bench) grow(size string) {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	pv := b.cluster.objects["persistentvolumes//pv"].(*corev1.PersistentVolume).DeepCopy()
	pv.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse(size)
	b.cluster.objects["persistentvolumes//pv"] = pv
}

func (b *bench) claimStatus() corev1.PersistentVolumeClaimStatus {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	return b.cluster.objects["persistentvolumeclaims/default/claim"].(*corev1.PersistentVolumeClaim).Status
}

func TestADriverWithoutMountsIsAskedOnce(t *testing.T) {
	b, driver, p := withDisk(t, storagev1.CSIDriverSpec{})
	driver.bare = true
	b.mount(p)
	b.mount(p)
	b.keep(t.Context(), p.UID)
	if got, want := driver.takeCalls(), "stage publish"; got != want {
		t.Errorf("the driver was called with %q, want %q", got, want)
	}
}

func TestADriverThatAsksForItIsCalledAgain(t *testing.T) {
	b, driver, p := withDisk(t, storagev1.CSIDriverSpec{
		RequiresRepublish: ptr.To(true), TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}}, ServiceAccountTokenInSecrets: ptr.To(true),
	})
	driver.bare = true // a second mount at the same place would hide the first
	b.mount(p)
	b.keep(t.Context(), p.UID)
	if got, want := driver.takeCalls(), "stage publish publish"; got != want {
		t.Errorf("the driver was called with %q, want %q", got, want)
	}
	if got := driver.published.Secrets[tokensKey]; !strings.HasPrefix(got, `{"vault":{"token":"robot-`) {
		t.Errorf("the secrets have the tokens %q", got)
	}
	if tokens, found := driver.published.VolumeContext[tokensKey]; found {
		t.Errorf("the attributes have the tokens %q, too", tokens)
	}
}

func TestAVolumeGrowsWhileItsPodRuns(t *testing.T) {
	b, driver, p := withDisk(t, storagev1.CSIDriverSpec{})
	b.mount(p)
	b.grow("2Gi")
	driver.expanding = status.Error(codes.Unavailable, "busy")
	b.keep(t.Context(), p.UID)
	s := b.claimStatus()
	if size := s.Capacity[corev1.ResourceStorage]; size.String() != "1Gi" || s.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimNodeResizeInProgress ||
		len(s.Conditions) != 1 || s.Conditions[0].Type != corev1.PersistentVolumeClaimNodeResizeError {
		t.Errorf("after a failure the claim's status is %+v", s)
	}
	driver.expanding = nil
	b.keep(t.Context(), p.UID)
	if got, want := driver.takeCalls(), "stage publish expand expand"; got != want {
		t.Errorf("the driver was called with %q, want %q", got, want)
	}
	s = b.claimStatus()
	if size := s.Capacity[corev1.ResourceStorage]; size.String() != "2Gi" || len(s.AllocatedResourceStatuses) != 0 || len(s.Conditions) != 0 {
		t.Errorf("the claim's status is %+v", s)
	}
	b.grow("3Gi")
	driver.expanding = status.Error(codes.OutOfRange, "too large")
	b.keep(t.Context(), p.UID)
	b.keep(t.Context(), p.UID)
	if got, want := driver.takeCalls(), "expand"; got != want {
		t.Errorf("after a final error the driver was called with %q, want %q", got, want)
	}
	if got := b.claimStatus().AllocatedResourceStatuses[corev1.ResourceStorage]; got != corev1.PersistentVolumeClaimNodeResizeInfeasible {
		t.Errorf("the claim's expansion is %q, want %q", got, corev1.PersistentVolumeClaimNodeResizeInfeasible)
	}
}

// events records the reasons of events.
type events struct {
	mu      sync.Mutex
	reasons []string
}

func (e *events) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reasons = append(e.reasons, reason)
}

func TestADriverMeasuresItsVolumesAndReportsDamage(t *testing.T) {
	b, driver, p := withDisk(t, storagev1.CSIDriverSpec{})
	said := &events{}
	b.CSI.Events = said
	b.mount(p)
	driver.condition = &csispec.VolumeCondition{Message: "fine"}
	measure := func() Usage {
		t.Helper()
		list := b.Measurements(p, b.dir)
		if len(list) != 1 || list[0].Claim != "claim" {
			t.Fatalf("the measurements are %+v", list)
		}
		usage, err := list[0].Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return usage
	}
	if u := measure(); u.CapacityBytes != 100 || u.UsedBytes != 30 || u.Available != 70 || u.Abnormal == nil || *u.Abnormal {
		t.Errorf("the usage is %+v", u)
	}
	driver.condition = &csispec.VolumeCondition{Abnormal: true, Message: "a disk is gone"}
	for range 2 {
		if u := measure(); u.Abnormal == nil || !*u.Abnormal {
			t.Errorf("the usage is %+v", u)
		}
	}
	if want := []string{"VolumeConditionAbnormal"}; !slices.Equal(said.reasons, want) {
		t.Errorf("the events are %v, want %v", said.reasons, want)
	}
}

func TestALimitIsReadAgainWhenTheNodeIsFull(t *testing.T) {
	b, driver, p := withDisk(t, storagev1.CSIDriverSpec{})
	driver.mu.Lock()
	driver.limit = 3
	driver.stuck = make(chan struct{})
	close(driver.stuck) // publishing fails
	driver.mu.Unlock()
	if _, err := b.Mount(t.Context(), p, b.dir); err == nil {
		t.Fatal("the volume was mounted")
	}
	b.CSI.noteExhausted("disk.example.com", status.Error(codes.ResourceExhausted, "full"))
	eventually(t, "the CSINode has the new limit", func() bool {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		return *b.cluster.objects["csinodes//node-1"].(*storagev1.CSINode).Spec.Drivers[0].Allocatable.Count == 3
	})
	period := int64(10)
	b.cluster.mu.Lock()
	b.cluster.objects["csidrivers//disk.example.com"] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: &period}}
	b.cluster.mu.Unlock()
	driver.mu.Lock()
	driver.limit = 0
	driver.mu.Unlock()
	b.CSI.mu.Lock()
	b.CSI.drivers["disk.example.com"].refreshed = b.cluster.now().Add(-limitPeriod)
	b.CSI.mu.Unlock()
	b.CSI.refreshLimits(t.Context())
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	if got := b.cluster.objects["csinodes//node-1"].(*storagev1.CSINode).Spec.Drivers[0].Allocatable; got != nil {
		t.Errorf("a driver without a limit has %+v", got)
	}
}

func TestABlockVolumeIsADeviceOfTheDriver(t *testing.T) {
	b, driver, p := withDisk(t, storagev1.CSIDriverSpec{})
	driver.mu.Lock()
	driver.device = true
	driver.mu.Unlock()
	b.cluster.mu.Lock()
	for _, key := range []string{"persistentvolumes//pv", "persistentvolumeclaims/default/claim"} {
		mode := ptr.To(corev1.PersistentVolumeBlock)
		switch o := b.cluster.objects[key].(type) {
		case *corev1.PersistentVolume:
			o.Spec.VolumeMode = mode
		case *corev1.PersistentVolumeClaim:
			o.Spec.VolumeMode = mode
		}
	}
	b.cluster.mu.Unlock()
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "db", DevicePath: "/dev/db"}}
	point := b.mount(p)["db"]
	root := filepath.Dir(filepath.Dir(b.dir))
	if want := filepath.Join(root, "plugins/kubernetes.io/csi/volumeDevices/publish/pv/uid-1"); point.HostPath != want || !point.Block {
		t.Errorf("the device is at %+v, want %s", point, want)
	}
	if request := driver.published; request.VolumeCapability.GetBlock() == nil || request.StagingTargetPath != filepath.Join(root, "plugins/kubernetes.io/csi/volumeDevices/staging/pv") {
		t.Errorf("the driver got %v", request)
	}
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	if got, want := driver.takeCalls(), "stage publish unpublish unstage"; got != want {
		t.Errorf("the driver was called with %q, want %q", got, want)
	}
}

func TestAVolumeThatCannotBeUnstagedDoesNotDelayItsPod(t *testing.T) {
	b, driver, p := withDisk(t, storagev1.CSIDriverSpec{})
	b.mount(p)
	driver.unstaging = status.Error(codes.Internal, "busy")
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	// A new process finds the volume by its record.
	next := NewCSI(b.CSI.CSIOptions)
	defer next.closeAll()
	next.unstageAll(t.Context()) // the driver is not there yet
	if err := next.RegisterDriver(t.Context(), "disk.example.com", driver.socket, diskSocket, []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	next.unstageAll(t.Context())
	driver.mu.Lock()
	driver.unstaging = nil
	driver.mu.Unlock()
	next.unstageAll(t.Context())
	next.unstageAll(t.Context())
	if got, want := driver.takeCalls(), "stage publish unpublish unstage unstage unstage"; got != want {
		t.Errorf("the driver was called with %q, want %q", got, want)
	}
	left, err := filepath.Glob(filepath.Join(b.CSI.RootDir, "plugins/kubernetes.io/csi/*/*"))
	if err != nil || len(left) > 0 {
		t.Errorf("folders are left: %v, %v", left, err)
	}
}

func TestOnlyWhatMayBeStagedIsUnstaged(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{status.Error(codes.InvalidArgument, "never"), "stage unpublish"},
		{status.Error(codes.DeadlineExceeded, "perhaps"), "stage unpublish unstage"},
	} {
		b, driver, p := withDisk(t, storagev1.CSIDriverSpec{})
		driver.staging = c.err
		if _, err := b.Mount(t.Context(), p, b.dir); err == nil {
			t.Fatal("the volume was mounted")
		}
		if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
			t.Fatal(err)
		}
		if got := driver.takeCalls(); got != c.want {
			t.Errorf("after %v the driver was called with %q, want %q", c.err, got, c.want)
		}
	}
}

func TestAStagedVolumeStaysAttached(t *testing.T) {
	b, driver, p := withDisk(t, storagev1.CSIDriverSpec{})
	b.mount(p)
	if got := b.CSI.VolumesInUse(); len(got) > 0 {
		t.Errorf("volumes that are not attached are in use: %v", got)
	}
	data := csiData{SpecVolID: "pv", VolumeHandle: "vol-1", DriverName: "disk.example.com", LifecycleMode: storagev1.VolumeLifecyclePersistent, AttachmentID: "csi-1"}
	if err := b.CSI.records.stage(b.CSI.stagingRecord(data), data); err != nil {
		t.Fatal(err)
	}
	want := []string{"kubernetes.io/csi/disk.example.com^vol-1"}
	if got := b.CSI.VolumesInUse(); !slices.Equal(got, want) {
		t.Errorf("in use are %v, want %v", got, want)
	}
	released := 0
	b.CSI.Released = func() { released++ }
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	if got := b.CSI.VolumesInUse(); len(got) > 0 || released != 1 {
		t.Errorf("after the end, %v are in use; released %d times, calls %q", got, released, driver.takeCalls())
	}
}

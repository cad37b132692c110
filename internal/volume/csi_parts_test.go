package volume

import (
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func FuzzCSIRecords(f *testing.F) {
	f.Add([]byte(`{"specVolID":"pv","volumeHandle":"v","driverName":"disk.example.com","volumeLifecycleMode":"Persistent"}`))
	f.Add([]byte(`{"driverName":"../../etc","volumeHandle":"v"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		data, err := parseCSIData(content)
		if err != nil {
			return
		}
		if checkDriverName(data.DriverName) != nil || data.VolumeHandle == "" {
			t.Errorf("%q was accepted", content)
		}
	})
}

func TestDriverNamesCannotLeaveTheirFolder(t *testing.T) {
	for name, ok := range map[string]bool{"disk.example.com": true, "Disk.Example.com": true, "": false, "..": false, "a/b": false, "../x": false} {
		if err := checkDriverName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAnExpansionLeavesNoTraceInTheClaimAfterItSucceeds(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	s := &corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimFileSystemResizePending}, {Type: "Other"},
	}}
	resizeRuns(s)
	if got := s.AllocatedResourceStatuses[corev1.ResourceStorage]; got != corev1.PersistentVolumeClaimNodeResizeInProgress {
		t.Errorf("the status during the expansion is %s", got)
	}
	resizeFailed(s, "disk full", true, now)
	if got := s.AllocatedResourceStatuses[corev1.ResourceStorage]; got != corev1.PersistentVolumeClaimNodeResizeInfeasible || len(s.Conditions) != 3 {
		t.Errorf("the status after a failure is %s, conditions %v", got, s.Conditions)
	}
	resizeFailed(s, "disk full", true, metav1.NewTime(now.Add(time.Hour)))
	if last := s.Conditions[len(s.Conditions)-1]; len(s.Conditions) != 3 || !last.LastTransitionTime.Equal(&now) {
		t.Errorf("a second failure changes the time: %v", s.Conditions)
	}
	resizeDone(s, resource.MustParse("2Gi"))
	if size := s.Capacity[corev1.ResourceStorage]; size.String() != "2Gi" || len(s.AllocatedResourceStatuses) != 0 || len(s.Conditions) != 1 || s.Conditions[0].Type != "Other" {
		t.Errorf("the status after the expansion is %+v", s)
	}
}

func TestADriversMeasurementsAreReadWithoutTrustInTheirNumbers(t *testing.T) {
	got := usageOf(&csispec.NodeGetVolumeStatsResponse{Usage: []*csispec.VolumeUsage{
		{Unit: csispec.VolumeUsage_BYTES, Total: 10, Available: -3, Used: 7}, {Unit: csispec.VolumeUsage_INODES, Total: 5, Available: 4, Used: 1}, {Unit: 77, Total: 9}, nil,
	}})
	if want := (Usage{CapacityBytes: 10, UsedBytes: 7, Inodes: 5, InodesFree: 4, InodesUsed: 1}); got != want {
		t.Errorf("the usage is %+v, want %+v", got, want)
	}
}

func TestOnlyAVolumeOfOnePodIsMountedWithASELinuxLabel(t *testing.T) {
	level := &corev1.SELinuxOptions{Level: "s0:c1,c2"}
	volume := func(change func(*csiVolume)) *csiVolume {
		v := &csiVolume{
			object: &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{SELinuxMount: ptr.To(true)}},
			persistent: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			}},
			pod: &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SELinuxOptions: level}, Containers: []corev1.Container{{}, {}}}},
		}
		change(v)
		return v
	}
	for name, c := range map[string]struct {
		volume  *csiVolume
		enabled bool
		want    string
	}{
		"one pod":              {volume(func(*csiVolume) {}), true, "system_u:object_r:container_file_t:s0:c1,c2"},
		"a machine without":    {volume(func(*csiVolume) {}), false, ""},
		"a driver that cannot": {volume(func(v *csiVolume) { v.object.Spec.SELinuxMount = nil }), true, ""},
		"several pods":         {volume(func(v *csiVolume) { v.persistent.Spec.AccessModes[0] = corev1.ReadWriteMany }), true, ""},
		"containers of two labels": {volume(func(v *csiVolume) {
			v.pod.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c9"}}
		}), true, ""},
	} {
		if got := c.volume.seLinuxLabel(c.enabled); got != c.want {
			t.Errorf("%s: label %q, want %q", name, got, c.want)
		}
	}
}

func TestTheSourceOfAnNFSVolume(t *testing.T) {
	for server, want := range map[string]string{"10.0.0.1": "10.0.0.1:/a", "fd00::1": "[fd00::1]:/a", "[fd00::1]": "[fd00::1]:/a", "nas": "nas:/a"} {
		if got := nfsSource(&corev1.NFSVolumeSource{Server: server, Path: "/a"}); got != want {
			t.Errorf("%s: %s, want %s", server, got, want)
		}
	}
}

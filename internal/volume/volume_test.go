package volume

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// bench runs a Manager on one pod's folder and unmounts everything when the test ends.
type bench struct {
	*Manager
	t       *testing.T
	cluster *cluster
	dir     string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchLogging(t, t.Output())
}

func newBenchLogging(t *testing.T, logs io.Writer) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	cluster := newCluster()
	manager := New(Options{Client: cluster, Log: slog.New(slog.NewTextHandler(logs, nil)), Now: cluster.now})
	b := &bench{Manager: manager, t: t, cluster: cluster, dir: filepath.Join(t.TempDir(), "pod")}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); manager.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := unmountBelow(b.dir); err != nil {
			t.Error(err)
		}
	})
	return b
}

// pod returns a pod with one container that mounts all given volumes.
func pod(volumes ...corev1.Volume) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-1", Labels: map[string]string{"app": "web", "b": "x\"y"}}}
	container := corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("1250m")}}}
	for _, volume := range volumes {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: "/" + volume.Name})
	}
	pod.Spec = corev1.PodSpec{Volumes: volumes, Containers: []corev1.Container{container}, ServiceAccountName: "robot"}
	return pod
}

func volume(name string, source corev1.VolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: source}
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm", Namespace: "default"}, Data: data}
}

func (b *bench) mount(pod *corev1.Pod) map[string]MountPoint {
	b.t.Helper()
	points, err := b.Mount(b.t.Context(), pod, b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	return points
}

// content reads a volume as a container sees it: through the visible names, following links.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	var walk func(string)
	walk = func(relative string) {
		entries, err := os.ReadDir(filepath.Join(dir, relative))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			name := filepath.Join(relative, entry.Name())
			if strings.HasPrefix(entry.Name(), "..") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // the link was just being removed
			}
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(name)
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(data)
		}
	}
	walk("")
	return files
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

func perm(t *testing.T, path string) (fs.FileMode, *syscall.Stat_t) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode() &^ fs.ModeDir, info.Sys().(*syscall.Stat_t)
}

func TestMissingReferencesAreReportedUnlessOptional(t *testing.T) {
	item := []corev1.KeyToPath{{Key: "no", Path: "no"}}
	for _, test := range []struct {
		name   string
		source corev1.VolumeSource
		want   string // "" means no error
	}{
		{"a missing ConfigMap", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nope"}}},
			`MountVolume.SetUp failed for volume "v" : configmap "nope" not found`},
		{"a missing optional ConfigMap", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nope"}, Optional: ptr.To(true)}}, ""},
		{"a missing Secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nope"}}, `secret "nope" not found`},
		{"a missing key", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Items: item}},
			"references non-existent config key: no"},
		{"a missing optional key", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Items: item, Optional: ptr.To(true)}}, ""},
		{"a path that leaves the volume", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
			Items: []corev1.KeyToPath{{Key: "a", Path: "x/../../up"}}}}, "must not start with"},
		{"hostPath of the wrong type", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/hosts", Type: ptr.To(corev1.HostPathDirectory)}},
			"hostPath type check failed: /etc/hosts is not a directory"},
		{"hostPath of the right type", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/null", Type: ptr.To(corev1.HostPathCharDev)}}, ""},
		{"an unbound claim", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}, "PVC is not bound"},
		{"a foreign kind", corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}, "CSI driver"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			b.cluster.put("configmaps", "cm", configMap(map[string]string{"a": "1"}))
			b.cluster.put("persistentvolumeclaims", "claim", &corev1.PersistentVolumeClaim{})
			_, err := b.Mount(t.Context(), pod(volume("v", test.source)), b.dir)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
}

func TestProjectedVolumesJoinAllSourcesWithTheirModesAndOwners(t *testing.T) {
	for _, test := range []struct {
		name          string
		user, group   *int64
		token, others fs.FileMode
		uid, gid      uint32
	}{
		{name: "no user and no group", token: 0o644, others: 0o440},
		{name: "a user", user: ptr.To(int64(1000)), token: 0o600, others: 0o440, uid: 1000},
		{name: "a group", group: ptr.To(int64(2000)), token: 0o640, others: 0o440, gid: 2000},
		{name: "both", user: ptr.To(int64(1000)), group: ptr.To(int64(2000)), token: 0o640, others: 0o440, uid: 1000, gid: 2000},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			b.cluster.put("configmaps", "cm", configMap(map[string]string{"ca.crt": "CA"}))
			p := pod(volume("all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "tls/ca.crt", Mode: ptr.To(int32(0o440))}}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
					{Path: "app", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}},
					{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu"}},
					{Path: "memory", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}},
				}}},
			}}}))
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: test.user, FSGroup: test.group}
			dir := b.mount(p)["all"].HostPath
			want := map[string]string{"token": "robot-1", "tls/ca.crt": "CA", "labels": "app=\"web\"\nb=\"x\\\"y\"", "app": "web", "cpu": "2", "memory": "64"}
			if got := content(t, dir); !maps.Equal(got, want) {
				t.Errorf("content is %q, want %q", got, want)
			}
			mode, stat := perm(t, filepath.Join(dir, "token"))
			if mode != test.token || stat.Uid != test.uid || stat.Gid != test.gid {
				t.Errorf("token is %v of %d:%d, want %v of %d:%d", mode, stat.Uid, stat.Gid, test.token, test.uid, test.gid)
			}
			if mode, _ := perm(t, filepath.Join(dir, "tls/ca.crt")); mode != test.others {
				t.Errorf("tls/ca.crt is %v, want %v", mode, test.others)
			}
			p = p.DeepCopy()
			p.Labels["app"] = "changed"
			if err := b.Refresh(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if got := content(t, dir)["app"]; got != "changed" {
				t.Errorf("after the label changed the volume shows %q", got)
			}
		})
	}
}

func TestATokenIsRenewedAt80PercentOfItsLifeAndKeptWhileRenewingFails(t *testing.T) {
	b := newBench(t)
	start := time.Now()
	p := pod(volume("all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}))
	dir := b.mount(p)["all"].HostPath
	for _, step := range []struct {
		after   time.Duration
		refuse  bool
		want    string
		wantErr bool
	}{
		{after: 47 * time.Minute, want: "robot-1"},
		{after: 49 * time.Minute, refuse: true, want: "robot-1"},
		{after: 50 * time.Minute, want: "robot-2"},
		{after: 3 * time.Hour, refuse: true, want: "robot-2", wantErr: true},
	} {
		b.cluster.setNow(start.Add(step.after))
		b.cluster.mu.Lock()
		if b.cluster.tokens = max(b.cluster.tokens, 1); step.refuse {
			b.cluster.tokens = -1
		}
		b.cluster.mu.Unlock()
		if err := b.Refresh(t.Context(), p); (err != nil) != step.wantErr {
			t.Errorf("after %v: error %v", step.after, err)
		}
		if got := content(t, dir)["token"]; got != step.want {
			t.Errorf("after %v the token is %s, want %s", step.after, got, step.want)
		}
	}
}

func TestEmptyDirsKeepTheirContentAndMemoryOnesAreLimited(t *testing.T) {
	b := newBench(t)
	p := pod(
		volume("disk", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		volume("memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("1Mi"))}}),
	)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To(int64(2000))}
	points := b.mount(p)
	for name, point := range points {
		mode, stat := perm(t, point.HostPath)
		want := map[string]fs.FileMode{"disk": 0o777 | fs.ModeSetgid, "memory": 0o777 | fs.ModeSetgid | fs.ModeSticky}[name]
		if mode != want || stat.Gid != 2000 {
			t.Errorf("%s is %v of group %d, want %v of 2000", name, mode, stat.Gid, want)
		}
		part, err := b.SubPath(t.Context(), b.dir, corev1.VolumeMount{Name: name}, "main", 0, point, "new")
		if err != nil {
			t.Fatal(err)
		}
		if mode, stat := perm(t, part); mode != want || stat.Gid != 2000 {
			t.Errorf("a new folder in %s is %v of group %d, want %v of 2000", name, mode, stat.Gid, want)
		}
		if err := errors.Join(unmountBelow(part), os.Remove(filepath.Join(point.HostPath, "new"))); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(point.HostPath, "kept"), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(points["memory"].HostPath, "large"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("2 MiB into 1 MiB of memory gave %v", err)
	}
	// A new process without state keeps everything.
	other := New(Options{Client: b.cluster})
	again, err := other.Mount(t.Context(), p, b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, point := range again {
		if got := content(t, point.HostPath)["kept"]; got != "kept" {
			t.Errorf("%s: after a restart its file is %q", name, got)
		}
	}
	usage, err := usages(t, other, p, b.dir)
	if err != nil || len(usage) != 2 {
		t.Fatalf("usage is %v, error %v", usage, err)
	}
	if memory := usage[1]; memory.CapacityBytes != 1<<20 || memory.UsedBytes == 0 || memory.InodesUsed == 0 {
		t.Errorf("usage of memory is %+v", memory)
	}
	if disk := usage[0]; disk.UsedBytes == 0 || disk.InodesUsed != 2 {
		t.Errorf("usage of disk is %+v", disk)
	}
	if err := other.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	if left, _ := mountsBelow(b.dir); len(left) != 0 {
		t.Errorf("left mounted: %v", left)
	}
}

func TestSubPathsNeverLeaveTheirVolume(t *testing.T) {
	b := newBench(t)
	p := pod(volume("data", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}))
	point := b.mount(p)["data"]
	at := func(name string) string { return filepath.Join(point.HostPath, name) }
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("inside"), 0o600),
		os.Symlink("file", at("link")),
		os.Symlink("/etc", at("absolute")),
		os.Symlink("../../../../../etc", at("up")),
		os.Symlink("absolute/passwd", at("twice")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mount := corev1.VolumeMount{Name: "data"}
	for i, test := range []struct {
		subPath, want string // an empty want means an error, "folder" a new folder
	}{
		{"file", "inside"}, {"link", "inside"}, {"new/deep", "folder"},
		{"absolute", ""}, {"up", ""}, {"twice", ""}, {"absolute/new", ""}, {"../data", ""}, {"file/x", ""},
	} {
		place, err := b.SubPath(t.Context(), b.dir, mount, "main", i, point, test.subPath)
		if test.want == "" {
			if err == nil {
				t.Errorf("%s: no error, it is at %s", test.subPath, place)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.subPath, err)
			continue
		}
		if test.want == "folder" {
			if mode, _ := perm(t, place); mode != 0o777 {
				t.Errorf("%s: mode %v, want the volume's", test.subPath, mode)
			}
		} else if got, err := os.ReadFile(place); string(got) != test.want {
			t.Errorf("%s: content %q, error %v", test.subPath, got, err)
		}
		if again, err := b.SubPath(t.Context(), b.dir, mount, "main", i, point, test.subPath); again != place || err != nil {
			t.Errorf("%s: the second time %s, error %v", test.subPath, again, err)
		}
	}
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
}

func TestALocalPersistentVolumeIsBoundInAndItsContentSurvivesThePod(t *testing.T) {
	b := newBench(t)
	disk := t.TempDir()
	if err := os.WriteFile(filepath.Join(disk, "data"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.cluster.put("persistentvolumeclaims", "claim", &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: "claim-uid"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	})
	b.cluster.objects["persistentvolumes//pv"] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{UID: "claim-uid"}, PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk}},
	}}
	p := pod(volume("db", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}))
	for range 2 {
		point := b.mount(p)["db"]
		if got := content(t, point.HostPath)["data"]; got != "precious" {
			t.Errorf("the volume shows %q", got)
		}
	}
	if usage, err := usages(t, b.Manager, p, b.dir); err != nil || len(usage) != 1 || usage[0].Claim != "claim" || usage[0].UsedBytes == 0 {
		t.Errorf("usage is %+v, error %v", usage, err)
	}
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(disk, "data")); string(got) != "precious" {
		t.Fatalf("after the pod the disk holds %q, error %v", got, err)
	}
}

// usages measures the pod's volumes.
func usages(t *testing.T, m *Manager, p *corev1.Pod, dir string) ([]Usage, error) {
	var out []Usage
	for _, measurement := range m.Measurements(p, dir) {
		u, err := measurement.Run(t.Context())
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

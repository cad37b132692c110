package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// claim is a manifest of a claim; class "" leaves it to the cluster's default.
func claim(name, size, class, mode string) string {
	text := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec:\n  accessModes: [ReadWriteOnce]\n  resources: {requests: {storage: %s}}\n", name, size)
	if class != "" {
		text += "  storageClassName: " + class + "\n"
	}
	if mode != "" {
		text += "  volumeMode: " + mode + "\n"
	}
	return text + "---\n"
}

// user is a pod with a claim at /data, or at the device /dev/data.
func user(name, claim, where, command string) string {
	mount := "volumeMounts: [{name: data, mountPath: /data}]"
	if where != "" {
		mount = "volumeDevices: [{name: data, devicePath: /dev/data}]"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers: [{name: sailor, image: "test/sailor:v1", args: [%s], %s}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
---
`, name, command, mount, claim)
}

func (c *cluster) finished(pod string) {
	c.t.Helper()
	c.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/"+pod, "--timeout=90s")
}

// volumeOf returns the name of a claim's volume.
func (c *cluster) volumeOf(claim string) string {
	return c.kubectl("get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
}

// loopsBelow returns the loop devices of files below a folder.
func loopsBelow(dir string) (found []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if backing, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(backing), dir+"/") {
			found = append(found, filepath.Base(filepath.Dir(filepath.Dir(file)))+": "+strings.TrimSpace(string(backing)))
		}
	}
	return found
}

// noVolumes waits until no volume is left on the machine.
func (c *cluster) noVolumes() {
	c.t.Helper()
	c.eventually(time.Minute, "the volumes are gone", func() error {
		left, err := filepath.Glob(filepath.Join(c.dir, "volumes", "*pvc-*"))
		if loops := loopsBelow(c.dir); err != nil || len(left)+len(loops) > 0 {
			return fmt.Errorf("%v: %v are left, with loop devices %v", err, left, loops)
		}
		return nil
	})
}

// TestAClaimWithoutAClassKeepsItsFiles is what a chart with a claim does on a new cluster.
func TestAClaimWithoutAClassKeepsItsFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadProgram("test/sailor:v1", "./sailor")
	c.apply(claim("data", "32Mi", "", "") + user("writer", "data", "", "put, /data/log, first"))
	c.finished("writer")
	c.kubectl("delete", "pod", "writer", "--timeout=60s")
	c.stop(syscall.SIGKILL)
	c.up()
	c.apply(user("reader", "data", "", `say, "@/data/log"`))
	c.finished("reader")
	if log := c.kubectl("logs", "reader"); strings.TrimSpace(log) != "first" {
		t.Errorf("the second pod read %q", log)
	}
	folder := filepath.Join(c.dir, "volumes", c.volumeOf("data"))
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
	c.kubectl("patch", "pvc", "data", "-p", `{"spec":{"resources":{"requests":{"storage":"64Mi"}}}}`)
	c.kubectl("wait", "--for=jsonpath={.status.capacity.storage}=64Mi", "pvc/data", "--timeout=60s")
	c.kubectl("delete", "pod/reader", "pvc/data", "--timeout=60s")
	c.noVolumes()
	c.kubectl("wait", "--for=delete", "pv", "--all", "--timeout=60s")
	// The class does not come back when its user has deleted it.
	c.kubectl("delete", "storageclass", "local")
	c.stop(syscall.SIGTERM)
	c.up()
	c.kubectl("wait", "--for=condition=Ready", "node/one", "--timeout=60s")
	if out := c.kubectl("get", "storageclass", "-o", "name"); out != "" {
		t.Errorf("after a restart there are classes: %s", out)
	}
}

const imageClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: image}
provisioner: local.knarr.dev
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
parameters: {enforce: image}
---
`

// mayResizeMounted reports whether this process has CAP_SYS_RESOURCE, which ext4 asks for.
func mayResizeMounted() bool {
	status, _ := os.ReadFile("/proc/self/status")
	_, caps, _ := strings.Cut(string(status), "CapEff:")
	var mask uint64
	_, _ = fmt.Sscanf(caps, "%x", &mask)
	const sysResource = 24
	return mask&(1<<sysResource) != 0
}

// TestAnImageEnforcesTheSizeAndGrows writes more than the claim's size, and again after its growth.
func TestAnImageEnforcesTheSizeAndGrows(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--mount") // another test's mount namespace would keep loop devices in use
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices: ", err)
	}
	c.up()
	c.loadProgram("test/sailor:v1", "./sailor")
	c.apply(imageClass + claim("data", "32Mi", "image", "") + user("one", "data", "", "fill, /data/file, '20'"))
	c.finished("one")
	c.apply(user("two", "data", "", "fill, /data/more, '20'"))
	c.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/two", "--timeout=90s")
	if log := c.kubectl("logs", "two"); !strings.Contains(log, "no space left") {
		t.Errorf("the second pod says %q", log)
	}
	c.apply(user("keeper", "data", "", "serve"))
	c.kubectl("wait", "--for=condition=Ready", "pod/keeper", "--timeout=60s")
	c.kubectl("patch", "pvc", "data", "-p", `{"spec":{"resources":{"requests":{"storage":"96Mi"}}}}`)
	c.stop(syscall.SIGKILL) // the growth goes on after the next start
	c.up()
	if !mayResizeMounted() {
		c.kubectl("delete", "pod", "keeper", "--timeout=60s")
	}
	c.kubectl("wait", "--for=jsonpath={.status.capacity.storage}=96Mi", "pvc/data", "--timeout=90s")
	c.apply(user("keeper", "data", "", "serve"))
	c.kubectl("wait", "--for=condition=Ready", "pod/keeper", "--timeout=60s")
	c.kubectl("exec", "keeper", "--", "/sailor", "fill", "/data/more", "40")
	c.crash()
	c.plugIn()
	c.up()
	c.apply(user("after", "data", "", "fill, /data/last, '10'"))
	c.finished("after")
	c.kubectl("delete", "pod", "--all", "--timeout=60s")
	c.kubectl("delete", "pvc", "data", "--timeout=60s")
	c.noVolumes()
}

// TestABlockVolumeIsALoopDevice writes to a raw device and finds the bytes with the next pod.
func TestABlockVolumeIsALoopDevice(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--mount") // another test's mount namespace would keep loop devices in use
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices: ", err)
	}
	c.up()
	c.loadProgram("test/sailor:v1", "./sailor")
	c.apply(claim("raw", "16Mi", "", "Block") + user("writer", "raw", "device", "put, /dev/data, anchor"))
	c.finished("writer")
	c.kubectl("delete", "pod", "writer", "--timeout=60s")
	c.crash()
	c.plugIn()
	c.up()
	c.apply(user("reader", "raw", "device", "head, /dev/data, '6'"))
	c.finished("reader")
	if log := c.kubectl("logs", "reader"); !strings.HasPrefix(log, "anchor") {
		t.Errorf("the second pod read %.20q", log)
	}
	c.kubectl("patch", "pvc", "raw", "-p", `{"spec":{"resources":{"requests":{"storage":"24Mi"}}}}`)
	c.kubectl("wait", "--for=jsonpath={.status.capacity.storage}=24Mi", "pvc/raw", "--timeout=60s")
	c.kubectl("delete", "pod/reader", "pvc/raw", "--timeout=60s")
	c.noVolumes()
	// What is left at the end is purge's.
	c.apply(claim("left", "16Mi", "", "Block") + user("last", "left", "device", "put, /dev/data, anchor"))
	c.finished("last")
	c.stop(syscall.SIGKILL)
	c.purge()
	if loops := loopsBelow(c.dir); len(loops) > 0 {
		t.Errorf("after purge there are loop devices: %v", loops)
	}
}

// smallDisk mounts a file system of a size in MiB, and returns its folder.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestPodsGoWhereTheirVolumesFit gives two nodes folders of different sizes.
func TestPodsGoWhereTheirVolumesFit(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.addWorker("one", "--local-storage-path", "disk="+smallDisk(t, 64))
	f.addWorker("two", "--local-storage-path", "disk="+smallDisk(t, 256))
	f.loadProgram("test/sailor:v1", "./sailor", f.workers...)
	f.apply(strings.ReplaceAll(strings.ReplaceAll(imageClass, "name: image", "name: disk"), "enforce: image", "enforce: none, folder: disk"))
	f.eventually(time.Minute, "the nodes report their capacity", func() error {
		out := f.kubectl("get", "csistoragecapacities", "-n", "kube-system", "-o", `jsonpath={.items[?(@.storageClassName=="disk")].capacity}`)
		if len(strings.Fields(out)) != 2 {
			return fmt.Errorf("capacities: %q", out)
		}
		return nil
	})
	var manifests string
	for i := range 3 {
		manifests += claim(fmt.Sprintf("data-%d", i), "60Mi", "disk", "") + user(fmt.Sprintf("pod-%d", i), fmt.Sprintf("data-%d", i), "", "put, /data/log, x")
	}
	f.apply(manifests + claim("huge", "1Ti", "disk", "") + user("pod-huge", "huge", "", "put, /data/log, x"))
	for i := range 3 {
		f.finished(fmt.Sprintf("pod-%d", i))
	}
	var pods struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
	}
	if err := json.Unmarshal([]byte(f.kubectl("get", "pods", "-o", "json")), &pods); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		want := "two"
		if p.Metadata.Name == "pod-huge" {
			want = ""
		}
		if p.Spec.NodeName != want {
			t.Errorf("%s is on node %q, want %q", p.Metadata.Name, p.Spec.NodeName, want)
		}
	}
	f.eventually(time.Minute, "an event says why the huge claim waits", func() error {
		if out := f.kubectl("get", "events", "-o", "jsonpath={.items[*].message}"); !strings.Contains(out, "did not have enough free storage") {
			return fmt.Errorf("events: %s", out)
		}
		return nil
	})
}

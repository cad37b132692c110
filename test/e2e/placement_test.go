package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pinnedPod is a pod whose container has the name of the pod.
func pinnedPod(name, resources string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: %[1]s
    image: harbour/store:v1
    env: [{name: DATA_DIR, value: /tmp}]
    resources: %[2]s
    volumeMounts: [{name: data, mountPath: /tmp}]
  volumes: [{name: data, emptyDir: {}}]
`, name, resources)
}

// cpusOf returns the CPUs on which the program of the pod may run.
func (c *cluster) cpusOf(pod string) string {
	uid := c.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	for _, pid := range c.processes() {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if !strings.Contains(string(groups), uid) || filepath.Base(program) != "store" {
			continue
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:")
		return strings.TrimSpace(strings.SplitN(list, "\n", 2)[0])
	}
	return "none"
}

// awaitCPUs waits until the pod's program runs on these CPUs.
func (c *cluster) awaitCPUs(pod, want string) {
	c.t.Helper()
	got := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if got = c.cpusOf(pod); got == want {
			return
		}
	}
	c.t.Errorf("pod %s runs on CPUs %s, want %s", pod, got, want)
}

// TestAContainerGetsACPUOfItsOwn reserves CPU 0 of a machine with two CPUs, so that one pod gets
// CPU 1 for itself.
func TestAContainerGetsACPUOfItsOwn(t *testing.T) {
	t.Parallel()
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil || strings.TrimSpace(string(online)) != "0-1" {
		t.Skipf("needs a machine with the CPUs 0-1, this one has %s (%v)", strings.TrimSpace(string(online)), err)
	}
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "node.yaml")
	config := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
		"topologyManagerPolicy: single-numa-node\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("up", "--kubelet-config", file)
	c.loadProgram("harbour/store:v1", "../../examples/harbour/store")
	c.apply(pinnedPod("shared", "{}"))
	c.awaitCPUs("shared", "0-1")
	c.apply(pinnedPod("pinned", "{limits: {cpu: 1, memory: 64Mi}}"))
	c.awaitCPUs("pinned", "1")
	c.awaitCPUs("shared", "0")
	c.kubectl("delete", "pod", "pinned", "--timeout=60s")
	c.awaitCPUs("shared", "0-1")
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// counters are two pods that print 1, 2, 3, ..., and a server.
const counters = `
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: e2e/sailor:v1, args: [count]}]
---
apiVersion: v1
kind: Pod
metadata: {name: second}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: e2e/sailor:v1, args: [count]}]
---
apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: e2e/sailor:v1
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

// TestShimsSleep checks that the shims of running pods sleep, with hardly any memory, and that the
// pods do not notice: not from logs, exec, measurements, the death of a container, of containerd or
// of knarr. A killed shim costs its own pod a restart, and no other pod anything.
func TestShimsSleep(t *testing.T) {
	t.Setenv("KNARR_SHIM_AWAKE", "1s")
	c := newCluster(t)
	c.up()
	c.loadProgram("e2e/sailor:v1", "./sailor")
	c.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
	c.apply(counters)
	pods := []string{"first", "second", "server"}
	for _, pod := range pods {
		c.kubectl("wait", "--for=condition=Ready", "pod/"+pod, "--timeout=60s")
	}
	c.awaitSleep(3)
	for _, shim := range c.shims() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", shim))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "RssAnon:")
		if kilobytes, err := strconv.Atoi(strings.Fields(rest)[0]); err != nil || kilobytes > 512 {
			t.Errorf("a sleeping shim has %d kB of memory of its own, %v", kilobytes, err)
		}
	}
	ids := map[string]string{}
	for _, pod := range pods {
		ids[pod] = c.containerID(pod)
	}

	before := c.shims()
	usage := c.kubectl("get", "--raw", "/api/v1/nodes/one/proxy/metrics/resource")
	for _, pod := range pods {
		if !strings.Contains(usage, `container_memory_working_set_bytes{container="main",namespace="default",pod="`+pod+`"}`) {
			t.Errorf("no memory of pod %s is measured:\n%s", pod, usage)
		}
	}
	if awake := c.awakeShims(); len(awake) > 0 || fmt.Sprint(c.shims()) != fmt.Sprint(before) {
		t.Errorf("a measurement has woken the shims %v; they were %v and are %v", awake, before, c.shims())
	}
	c.checkCount("first")

	for range 2 {
		if out := c.kubectl("exec", "first", "--", "/sailor", "say", "aye"); strings.TrimSpace(out) != "aye" {
			t.Errorf("exec says %q", out)
		}
		c.awaitSleep(3)
	}

	c.kill(c.containerd())
	c.eventually(time.Minute, "exec after the end of containerd", func() error {
		out, err := c.tryKubectl("", "exec", "server", "--", "/sailor", "say", "aye")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	c.stop(syscall.SIGKILL)
	c.up()
	c.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=60s")
	c.awaitSleep(3)
	for _, pod := range pods {
		if id := c.containerID(pod); id != ids[pod] {
			t.Errorf("the container of pod %s was %q, is %q", pod, ids[pod], id)
		}
	}
	c.checkCount("second")

	// The end of a container wakes its shim.
	c.kill(c.firstProcess("first"))
	c.awaitRestart("first", ids["first"])
	c.awaitSleep(3)

	c.kill(c.shimOf("second"))
	c.awaitRestart("second", ids["second"])
	c.awaitSleep(3)
	if id := c.containerID("server"); id != ids["server"] {
		t.Errorf("the container of pod server was %q, is %q", ids["server"], id)
	}
	for _, pod := range pods {
		c.kubectl("delete", "pod", pod, "--timeout=60s")
	}
	c.eventually(time.Minute, "the shims end", func() error {
		if left := c.shims(); len(left) > 0 {
			return fmt.Errorf("shims %v are left", left)
		}
		return nil
	})
}

// containerID returns the id of a pod's container, and how often it has restarted.
func (c *cluster) containerID(pod string) string {
	c.t.Helper()
	return c.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}")
}

func (c *cluster) awaitRestart(pod, id string) {
	c.t.Helper()
	c.eventually(time.Minute, "pod "+pod+" runs again", func() error {
		out, err := c.tryKubectl("", "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
		if err != nil || !strings.HasSuffix(out, " true") || strings.HasPrefix(out, id) {
			return fmt.Errorf("%q, %v", out, err)
		}
		return nil
	})
}

// checkCount checks that no line of a counter's log is missing.
func (c *cluster) checkCount(pod string) {
	c.t.Helper()
	lines := strings.Fields(c.kubectl("logs", pod))
	for i, line := range lines {
		if line != strconv.Itoa(i+1) {
			c.t.Errorf("line %d of pod %s's log is %q", i+1, pod, line)
			return
		}
	}
	if len(lines) == 0 {
		c.t.Errorf("pod %s has no log", pod)
	}
}

// program returns the machine's processes whose program has the name.
func (c *cluster) program(name string) (pids []int) {
	for _, pid := range c.processes() {
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && filepath.Base(path) == name && strings.HasPrefix(path, c.dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (c *cluster) shims() []int { return c.program("containerd-shim-runc-v2") }

// awakeShims returns the shims that are not asleep. The last argument of a shim says so.
func (c *cluster) awakeShims() (awake []int) {
	for _, pid := range c.shims() {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && !strings.HasSuffix(string(args), "\x00sleep\x00") {
			awake = append(awake, pid)
		}
	}
	return awake
}

func (c *cluster) awaitSleep(count int) {
	c.t.Helper()
	c.eventually(2*time.Minute, "all shims sleep", func() error {
		if all, awake := c.shims(), c.awakeShims(); len(all) != count || len(awake) > 0 {
			return fmt.Errorf("of the shims %v, %v are awake", all, awake)
		}
		return nil
	})
}

func (c *cluster) containerd() int {
	c.t.Helper()
	pids := c.program("containerd")
	if len(pids) != 1 {
		c.t.Fatalf("the processes of containerd are %v", pids)
	}
	return pids[0]
}

func (c *cluster) kill(pid int) {
	c.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatalf("kill process %d: %v", pid, err)
	}
}

// firstProcess returns the first process of a pod's container.
func (c *cluster) firstProcess(pod string) int {
	c.t.Helper()
	id := strings.TrimPrefix(c.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}"), "containerd://")
	for _, top := range c.cgroups() {
		var found int
		_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Name() == "cgroup.procs" && filepath.Base(filepath.Dir(path)) == id {
				data, _ := os.ReadFile(path)
				if fields := strings.Fields(string(data)); len(fields) > 0 {
					found, _ = strconv.Atoi(fields[0])
				}
			}
			return nil
		})
		if found != 0 {
			return found
		}
	}
	c.t.Fatalf("no process of pod %s is found", pod)
	return 0
}

// shimOf returns the parent of a pod's container.
func (c *cluster) shimOf(pod string) int {
	c.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.firstProcess(pod)))
	if err != nil {
		c.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	parent, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil {
		c.t.Fatal(err)
	}
	return parent
}

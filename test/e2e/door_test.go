package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// run runs knarr on the machine and returns its output and exit status.
func (m *machine) run(args ...string) (string, int) {
	m.t.Helper()
	out, err := m.inside(binary, args...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), 0
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	}
	m.t.Fatalf("knarr %s: %v", strings.Join(args, " "), err)
	return "", 0
}

func wants(t *testing.T, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("%q is not in\n%s", text, output)
		}
	}
}

// Without usable cgroups no pod could start. So up must not say ready, but name the problem and the
// remedy.
func TestUpIsRefusedOnAMachineWithoutCgroups(t *testing.T) {
	needs(t)
	m := &machine{t: t, name: "bare", dir: filepath.Join(t.TempDir(), "data"), log: &output{}}
	m.space = newSpace(t, "--net", "--mount")
	t.Cleanup(m.unplug)
	m.ip("link set lo up")
	if out, err := m.inside("mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, args := range [][]string{{"up"}, {"node", "--join", "https://127.0.0.1:6443", "--token", "none"}} {
		out, status := m.run(append(args, "--data-dir", m.dir)...)
		if status != 1 || strings.Contains(out, "ready in") {
			t.Errorf("%s: exit status %d\n%s", args[0], status, out)
		}
		wants(t, out, "missing: cgroups", "remedy:", "mount -t cgroup2")
	}
	out, status := m.run("doctor", "--data-dir", m.dir)
	if status != 1 {
		t.Errorf("doctor: exit status %d", status)
	}
	wants(t, out, "missing  cgroups")
	// A server runs no pods, so it starts.
	c := &cluster{m}
	c.start("server")
	c.stop(syscall.SIGTERM)
}

// Ports of one's own cluster are fine. Ports of another one are taken, and its process is named.
func TestDoctorKnowsItsOwnClusterAndThatOfAnother(t *testing.T) {
	c := newCluster(t)
	c.up()
	out, status := c.run("doctor", "--data-dir", c.dir, "--cgroup-root", c.cgroup())
	if status != 0 {
		t.Errorf("doctor of a healthy cluster: exit status %d\n%s", status, out)
	}
	pid := fmt.Sprint(c.pid())
	wants(t, out, "in use by this cluster (process "+pid+")")
	other := filepath.Join(t.TempDir(), "data")
	out, status = c.run("up", "--data-dir", other)
	if status != 1 {
		t.Errorf("a second node on one machine: exit status %d", status)
	}
	taken := "port 0.0.0.0:6443: in use by the cluster"
	wants(t, out, taken, "process "+pid+",", "knarr stop", "--listen", "port 0.0.0.0:10250", c.dir+" has its pod network here", "unshare --net")
	out, status = c.run("server", "--data-dir", other)
	if status != 1 {
		t.Errorf("a server on a port that is taken: exit status %d", status)
	}
	wants(t, out, taken, "process "+pid+",")
	if strings.Contains(out, "pod network") {
		t.Errorf("a server needs no pod network:\n%s", out)
	}
}

// pid returns the pid of the knarr process. Without a PID namespace, nsenter becomes the command
// itself.
func (m *machine) pid() int { return m.cmd.Process.Pid }

// The machine's only address is 127.0.0.1.
func TestNodePortsAnswerOnAMachineWithLoopbackAlone(t *testing.T) {
	c := &cluster{newMachine(t, "alone")}
	for range 2 { // the second time, the pod network exists already
		c.up()
		if node := c.kubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`); node != "127.0.0.1" {
			t.Errorf("the node's address is %s", node)
		}
		c.loadProgram("harbour/web:v1", "../../examples/harbour/web")
		c.apply(webOnANodePort)
		c.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
		for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
			c.eventually(time.Minute, "the node port answers on "+host, func() error {
				_, err := c.get("http://" + host + ":30090/healthz")
				return err
			})
		}
		c.stop(syscall.SIGTERM)
	}
}

const webOnANodePort = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "harbour/web:v1", env: [{name: API_URL, value: "http://api"}], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30090}]}
`

// TestAPurgeLeavesOtherClustersAlone runs pods in a cluster. Meanwhile it purges a server in the
// same namespaces, and a cluster with a network of its own from the wrong network. The pods must
// keep running, and their Service must answer.
func TestAPurgeLeavesOtherClustersAlone(t *testing.T) {
	c := newCluster(t)
	c.up()
	c.loadProgram("harbour/web:v1", "../../examples/harbour/web")
	c.apply(webOnANodePort)
	c.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
	pods := func() string {
		return c.kubectl("get", "pods", "-o", "jsonpath={range .items[*]}{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount} {.status.podIP}{end}")
	}
	before := pods()

	server := &machine{t: t, name: "server", dir: filepath.Join(t.TempDir(), "data"), log: &output{}, space: c.space}
	server.start("server", "--listen", "0.0.0.0:6543")
	if out, status := server.run("purge", "--yes", "--data-dir", server.dir); status != 0 {
		t.Errorf("purge of the server:\n%s", out)
	}
	server.stop(syscall.SIGTERM)

	other := &cluster{newMachine(t, "other")}
	other.up()
	other.loadProgram("harbour/web:v1", "../../examples/harbour/web")
	other.apply(webOnANodePort)
	other.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
	if out, status := c.run("purge", "--yes", "--data-dir", other.dir, "--cgroup-root", other.cgroup()); status != 0 {
		t.Errorf("purge of the other cluster:\n%s", out)
	}
	other.stop(syscall.SIGTERM)

	if after := pods(); after != before {
		t.Errorf("the pods were %q, are %q", before, after)
	}
	address := c.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	for _, url := range []string{"http://" + address, "http://192.168.88.1:30090", "http://localhost:30090"} {
		if _, err := c.get(url + "/healthz"); err != nil {
			t.Errorf("%s does not answer any more: %v", url, err)
		}
	}
}

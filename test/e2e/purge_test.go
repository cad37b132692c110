package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
)

const allSorts = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: sorts}
spec:
  replicas: 2
  selector: {matchLabels: {app: sorts}}
  template:
    metadata: {labels: {app: sorts}}
    spec:
      initContainers: [{name: before, image: "e2e/sailor:v1", command: [/sailor, say, ready], volumeMounts: [{name: disk, mountPath: /d/e, subPath: e}]}]
      containers:
      - name: sailor
        image: e2e/sailor:v1
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        resources: {limits: {cpu: 100m, memory: 64Mi}}
        volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, {name: map, mountPath: /map}, {name: host, mountPath: /host}]
      volumes:
      - {name: disk, emptyDir: {}}
      - {name: memory, emptyDir: {medium: Memory}}
      - {name: map, configMap: {name: kube-root-ca.crt}}
      - {name: host, hostPath: {path: /run}}
---
apiVersion: v1
kind: Service
metadata: {name: sorts}
spec: {type: NodePort, selector: {app: sorts}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: port}
spec: {containers: [{name: sailor, image: "e2e/sailor:v1", ports: [{containerPort: 8080, hostPort: 8088}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host}
spec: {hostNetwork: true, containers: [{name: sailor, image: "e2e/sailor:v1"}]}
`

// TestPurgeLeavesNothing uses a machine with a read-only file system, except for the places that
// knarr may use. It starts a cluster with many kinds of pods and purges it twice: while it runs,
// and after it was killed. Afterwards processes, mounts, links, routes, rules, cgroups and files
// must be the same as before.
func TestPurgeLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newIsolatedCluster(t)
	sailor := c.buildProgram("./sailor")
	before := c.traces()
	for _, signal := range []syscall.Signal{0, syscall.SIGKILL} {
		c.up()
		c.loadImage("e2e/sailor:v1", sailor)
		c.apply(allSorts)
		c.kubectl("rollout", "status", "deployment/sorts", "--timeout=60s")
		c.kubectl("wait", "--for=condition=Ready", "pods", "--all", "--timeout=60s")
		if signal != 0 {
			c.stop(signal)
		}
		c.purge()
		// It has ended; this updates the test's own state.
		c.stop(syscall.SIGTERM)
		// A killed process exists until init has reaped it.
		c.eventually(time.Minute, "nothing is left", func() error {
			var left []error
			for trace, n := range c.traces() {
				if n > before[trace] {
					left = append(left, errors.New(trace))
				}
			}
			return errors.Join(left...)
		})
	}
	c.purge() // nothing to purge
}

// newIsolatedCluster returns a cluster on a machine that shares only the kernel and, read-only, the
// files with this one.
func newIsolatedCluster(t *testing.T) *cluster {
	t.Helper()
	needs(t)
	m := &machine{t: t, name: "island", dir: "/var/lib/knarr", log: &output{}}
	m.space = newSpace(t, "--net", "--mount", "--pid", "--mount-proc")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of knarr:\n%s", tail(m.log.String(), 60))
			m.purge()
		}
		m.unplug()
	})
	for _, line := range []string{
		"mount -t tmpfs tmpfs /var/lib", "mount -t tmpfs tmpfs /run", "mount -t tmpfs tmpfs /var/log", "mount -o remount,bind,ro /",
		"ip link set lo up", "ip link add uplink type veth peer name switch", "ip addr add 192.168.88.1/24 dev uplink", "ip link set uplink up", "ip link set switch up",
	} {
		args := strings.Fields(line)
		if out, err := m.inside(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return &cluster{m}
}

// traces lists everything that knarr could leave, one line each.
func (c *cluster) traces() map[string]int {
	c.t.Helper()
	found := map[string]int{}
	for what, command := range map[string][]string{
		"process": {"ps", "-e", "-o", "args="},
		"mount":   {"cut", "-d ", "-f4-", "/proc/self/mountinfo"},
		"link":    {"ip", "-o", "link"},
		"address": {"ip", "-4", "-o", "address"},
		"route":   {"ip", "-4", "route", "show", "table", "all"},
		"rule":    {"ip", "rule"},
		"file":    {"find", "/var/lib", "/var/log", "/run"},
	} {
		out, err := c.inside(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			c.t.Fatalf("%s: %v\n%s", command, err, out)
		}
		for line := range strings.Lines(string(out)) {
			found[what+" "+strings.TrimSpace(line)]++
		}
	}
	for _, table := range c.nftables() {
		found["nftables table "+table]++
	}
	for _, cgroup := range c.cgroups() {
		found["cgroup "+cgroup]++
	}
	return found
}

// nftables lists the tables of the machine's network.
func (c *cluster) nftables() []string {
	c.t.Helper()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.space.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	defer ns.Close()
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		c.t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	return names
}

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

package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
func TestUpIsRefusedWithoutCgroups(t *testing.T) {
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
func TestDoctorDistinguishesItsOwnClusterFromOthers(t *testing.T) {
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

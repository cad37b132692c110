// Package e2e tests bin/knarr as its users meet it: real clusters with real containers on this machine, each with ports,
// folders and cgroups of its own. Needs root and `make build`.
package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var binary = func() string {
	path, err := filepath.Abs("../../bin/knarr")
	if err != nil {
		panic(err)
	}
	return path
}()

// cluster is one knarr in a network namespace of its own, so that it meets no other cluster's ports, links and rules.
type cluster struct {
	t     *testing.T
	dir   string    // data folder
	space *exec.Cmd // keeps the network namespace
	flags []string
	cmd   *exec.Cmd
	log   *bytes.Buffer
	done  chan struct{}
}

// newCluster prepares a cluster; up starts it. Whatever happens, it is purged at the end and nothing of it may be left.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("needs make build: ", err)
	}
	dir, err := os.MkdirTemp("", "knarr-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: filepath.Join(dir, "data")}
	c.flags = []string{"--data-dir", c.dir, "--node-name", "one", "--cgroup-root", c.cgroup()}
	c.space = exec.Command("unshare", "--net", "sleep", "infinity")
	c.space.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.space.Start(); err != nil {
		t.Fatal(err)
	}
	c.plugIn()
	t.Cleanup(func() {
		c.stop(syscall.SIGTERM)
		c.purge()
		if t.Failed() && c.log != nil {
			t.Logf("knarr's output:\n%s", tail(c.log.String(), 60))
		}
		_ = c.space.Process.Kill()
		_ = c.space.Wait()
		c.checkNothingLeft()
		_ = os.RemoveAll(dir)
	})
	return c
}

func (c *cluster) cgroup() string {
	return fmt.Sprintf("/knarr-e2e-%d-%s", os.Getpid(), filepath.Base(filepath.Dir(c.dir)))
}

// plugIn gives the network namespace loopback and one address, as a machine has them.
func (c *cluster) plugIn() {
	c.t.Helper()
	const own = "/proc/self/ns/net"
	before, _ := os.Readlink(own)
	for { // until unshare has made the namespace
		if now, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", c.space.Process.Pid)); err == nil && now != before {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, args := range []string{
		"link set lo up", "link add uplink type veth peer name switch", "addr add 192.168.88.1/24 dev uplink", "link set uplink up", "link set switch up",
	} {
		if out, err := c.inside("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			c.t.Fatalf("ip %s: %v\n%s", args, err, out)
		}
	}
}

// inside makes a command that runs in the cluster's network namespace.
func (c *cluster) inside(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=/proc/" + fmt.Sprint(c.space.Process.Pid) + "/ns/net", "--", name}, args...)...)
}

// up runs `knarr up` and waits until it says ready.
func (c *cluster) up() {
	c.t.Helper()
	c.cmd = c.inside(binary, append([]string{"up"}, c.flags...)...)
	c.log, c.done = &bytes.Buffer{}, make(chan struct{})
	c.cmd.Stderr = c.log
	ready := make(chan struct{})
	c.cmd.Stdout = &watcher{out: c.log, text: "ready in", found: ready}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { _ = c.cmd.Wait(); close(c.done) }()
	select {
	case <-ready:
	case <-c.done:
		c.t.Fatalf("knarr up ended:\n%s", c.log)
	case <-time.After(60 * time.Second):
		c.t.Fatalf("knarr up is not ready after 60 s:\n%s", c.log)
	}
}

func (c *cluster) stop(signal syscall.Signal) {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(signal)
	select {
	case <-c.done:
	case <-time.After(30 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
		c.t.Error("knarr did not stop within 30 s of a signal")
	}
	c.cmd = nil
}

func (c *cluster) purge() {
	out, err := c.inside(binary, "purge", "--yes", "--data-dir", c.dir, "--cgroup-root", c.cgroup()).CombinedOutput()
	if err != nil {
		c.t.Errorf("purge: %v\n%s", err, out)
	}
}

// checkNothingLeft looks for processes, mounts, cgroups and files of the cluster.
func (c *cluster) checkNothingLeft() {
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && strings.Contains(string(mounts), c.dir) {
		c.t.Errorf("mounts are left below %s", c.dir)
	}
	if _, err := os.Stat(c.dir); err == nil {
		c.t.Errorf("the data folder %s is left", c.dir)
	}
	found, _ := filepath.Glob("/sys/fs/cgroup/*" + c.cgroup())
	more, _ := filepath.Glob("/sys/fs/cgroup" + c.cgroup())
	if found = append(found, more...); len(found) > 0 {
		c.t.Errorf("cgroups are left: %v", found)
	}
	if out, _ := exec.Command("pgrep", "-fa", c.dir).Output(); len(out) > 0 {
		c.t.Errorf("processes are left:\n%s", out)
	}
}

// kubectl runs the bundled kubectl and returns what it printed; it must succeed.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.tryKubectl("", args...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) tryKubectl(stdin string, args ...string) (string, error) {
	cmd := c.inside(binary, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig())
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// apply applies a manifest.
func (c *cluster) apply(manifest string) {
	c.t.Helper()
	if out, err := c.tryKubectl(manifest, "apply", "-f", "-"); err != nil {
		c.t.Fatalf("apply: %v\n%s", err, out)
	}
}

// loadProgram builds a Go program of this repository as an image named image.
func (c *cluster) loadProgram(image, pkg string) {
	c.t.Helper()
	program := filepath.Join(c.t.TempDir(), filepath.Base(pkg))
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		c.t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	if out, err := exec.Command(binary, "image", "build", "--data-dir", c.dir, "--tag", image, program).CombinedOutput(); err != nil {
		c.t.Fatalf("image build: %v\n%s", err, out)
	}
}

// eventually waits until fn returns nil.
func (c *cluster) eventually(limit time.Duration, what string, fn func() error) {
	c.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			pods, _ := c.tryKubectl("", "get", "pods,events", "-A", "-o", "wide")
			c.t.Fatalf("%s: not within %s: %v\n%s", what, limit, err, tail(pods, 60))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

type watcher struct {
	out   *bytes.Buffer
	text  string
	found chan struct{}
	seen  bool
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.out.Write(p)
	if !w.seen && strings.Contains(w.out.String(), w.text) {
		w.seen = true
		close(w.found)
	}
	return n, err
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

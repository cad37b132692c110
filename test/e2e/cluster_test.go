// Package e2e tests bin/knarr as users meet it: real clusters with real containers on this machine.
// Each cluster has its own ports, folders and cgroups. It needs root and `make build`.
package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// cluster is a cluster, used through the kubeconfig of a machine.
type cluster struct{ *machine }

// newCluster prepares a cluster of one machine with an ordinary address; up starts it.
func newCluster(t *testing.T, kinds ...string) *cluster {
	t.Helper()
	c := &cluster{newMachine(t, "one", kinds...)}
	c.plugIn()
	return c
}

// plugIn gives the machine its address, also after a crash.
func (c *cluster) plugIn() {
	c.t.Helper()
	for _, args := range []string{"link add uplink type veth peer name switch", "addr add 192.168.88.1/24 dev uplink", "link set uplink up", "link set switch up"} {
		c.ip(args)
	}
}

// up runs `knarr up` and waits until it says ready.
func (c *cluster) up() { c.t.Helper(); c.start("up") }

// kubectl runs the bundled kubectl and returns its output; it must succeed.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.tryKubectl("", args...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) tryKubectl(stdin string, args ...string) (string, error) {
	cmd := c.tool(binary, append([]string{"kubectl"}, args...)...)
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tool returns a command that finds the cluster by KUBECONFIG.
func (c *cluster) tool(name string, args ...string) *exec.Cmd {
	cmd := c.inside(name, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig())
	return cmd
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// apply applies a manifest.
func (c *cluster) apply(manifest string) {
	c.t.Helper()
	if out, err := c.tryKubectl(manifest, "apply", "-f", "-"); err != nil {
		c.t.Fatalf("apply: %v\n%s", err, out)
	}
}

// loadProgram builds a Go program of this repository, loads it as an image into the cluster's
// machine or into the given ones, and returns the program's path.
func (c *cluster) loadProgram(image, pkg string, machines ...*machine) string {
	c.t.Helper()
	program := c.buildProgram(pkg)
	c.loadImage(image, program, machines...)
	return program
}

func (c *cluster) buildProgram(pkg string) string {
	c.t.Helper()
	program := filepath.Join(c.t.TempDir(), filepath.Base(pkg))
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		c.t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return program
}

// loadImage makes an image of a program on the cluster's machine or on the given ones.
func (c *cluster) loadImage(image, program string, machines ...*machine) {
	c.t.Helper()
	if len(machines) == 0 {
		machines = []*machine{c.machine}
	}
	for _, m := range machines {
		if out, err := m.inside(binary, "image", "build", "--data-dir", m.dir, "--tag", image, program).CombinedOutput(); err != nil {
			c.t.Fatalf("image build: %v\n%s", err, out)
		}
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
			pods, _ := c.tryKubectl("", "get", "nodes,pods,events", "-A", "-o", "wide")
			c.t.Fatalf("%s: not within %s: %v\n%s", what, limit, err, tail(pods, 60))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

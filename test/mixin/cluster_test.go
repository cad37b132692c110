package mixin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// cluster is a cluster of one node, named "one", in namespaces of its own: of the network, and of
// mounts, where / is shared as on a machine with systemd. node-exporter needs that.
type cluster struct {
	t      *testing.T
	binary string
	dir    string
	keeper *exec.Cmd // of the namespaces
	pid    int       // of a process inside
	client *http.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	binary, err := filepath.Abs("../../bin/knarr")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("needs make build: ", err)
	}
	top, err := os.MkdirTemp("", "knarr-mixin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	c := &cluster{t: t, binary: binary, dir: filepath.Join(top, "data")}
	c.boot()
	c.up()
	c.connect()
	return c
}

// boot makes the namespaces, with an ordinary address.
func (c *cluster) boot() {
	c.t.Helper()
	c.keeper = exec.Command("unshare", "--fork", "--kill-child", "--net", "--mount", "--propagation", "shared", "sleep", "infinity")
	c.keeper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The death signal is tied to the thread that starts the command; threads of dial end early.
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		started <- c.keeper.Start()
		_ = c.keeper.Wait()
	}()
	if err := <-started; err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = c.keeper.Process.Kill()
		<-ended
	})
	pid := c.keeper.Process.Pid
	c.eventually("the namespaces exist", func() error {
		child, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
		if err != nil {
			return err
		}
		c.pid, err = strconv.Atoi(strings.TrimSpace(string(child)))
		return err
	})
	for _, args := range []string{
		"link set lo up", "link add uplink type veth peer name switch", "addr add 192.168.88.1/24 dev uplink", "link set uplink up", "link set switch up",
	} {
		c.run("ip", strings.Fields(args)...)
	}
}

// up runs `knarr up` until the test ends; then everything of it is removed.
func (c *cluster) up() {
	c.t.Helper()
	cgroup := fmt.Sprintf("/knarr-mixin-%d", os.Getpid())
	cmd := c.inside(c.binary, "up", "--data-dir", c.dir, "--node-name", "one", "--cgroup-root", cgroup, "--eviction-hard", "memory.available<100Mi", "--image-gc-high-threshold", "100")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	c.t.Cleanup(func() {
		if c.t.Failed() {
			pods, _ := c.inside(c.binary, "kubectl", "get", "pods,events", "-A", "-o", "wide").CombinedOutput()
			c.t.Logf("pods and events:\n%s", pods)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			<-done
		}
		if msg, err := c.inside(c.binary, "purge", "--yes", "--data-dir", c.dir, "--cgroup-root", cgroup).CombinedOutput(); err != nil {
			c.t.Errorf("purge: %v\n%s", err, msg)
		}
		if c.t.Failed() {
			text := out.String()
			c.t.Logf("output of knarr:\n%s", text[max(0, len(text)-4000):])
		}
	})
	c.eventually("knarr is ready", func() error {
		select {
		case <-done:
			c.t.Fatalf("knarr ended:\n%s", out)
		default:
		}
		if !strings.Contains(out.String(), "ready in") {
			return fmt.Errorf("not ready")
		}
		return nil
	})
}

// inside returns a command that runs in the cluster's namespaces.
func (c *cluster) inside(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(c.pid), "--net", "--mount", "--", name}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig())
	return cmd
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

func (c *cluster) run(name string, args ...string) []byte {
	c.t.Helper()
	cmd := c.inside(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, &stderr)
	}
	return out
}

func (c *cluster) kubectl(args ...string) []byte {
	c.t.Helper()
	return c.run(c.binary, append([]string{"kubectl"}, args...)...)
}

func (c *cluster) apply(manifest string) {
	c.t.Helper()
	cmd := c.inside(c.binary, "kubectl", "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("apply: %v\n%s", err, out)
	}
}

// loadImage builds the program of the pods, and makes an image of it.
func (c *cluster) loadImage(image, pkg string) {
	c.t.Helper()
	program := filepath.Join(c.t.TempDir(), filepath.Base(pkg))
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		c.t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	c.run(c.binary, "image", "build", "--data-dir", c.dir, "--tag", image, program)
}

// connect makes the client of scrapes: an administrator in the cluster's network.
func (c *cluster) connect() {
	c.t.Helper()
	raw, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		c.t.Fatal(err)
	}
	var config struct {
		Users []struct {
			User struct {
				Certificate string `json:"client-certificate-data"`
				Key         string `json:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(raw, &config); err != nil || len(config.Users) == 0 {
		c.t.Fatalf("kubeconfig: %v", err)
	}
	certificate, err := base64.StdEncoding.DecodeString(config.Users[0].User.Certificate)
	if err != nil {
		c.t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(config.Users[0].User.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: c.dial,
		// kube-prometheus does not verify the kubelet's certificate either.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}, //nolint:gosec // the test's own server
	}}
	c.t.Cleanup(c.client.CloseIdleConnections)
}

// dial connects from inside the network namespace. The thread that enters it ends with its
// goroutine, because the goroutine stays locked to it.
func (c *cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.pid))
		if err != nil {
			done <- result{err: err}
			return
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// get reads a page.
func (c *cluster) get(url string) []byte {
	c.t.Helper()
	resp, err := c.client.Get(url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %s %v\n%.300s", url, resp.Status, err, body)
	}
	return body
}

// eventually waits until fn returns nil.
func (c *cluster) eventually(what string, fn func() error) {
	c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

// output collects the output of a program. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

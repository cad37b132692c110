package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// knarr runs a command of knarr on the machine and returns its output; it must have the given exit
// status.
func (m *machine) knarr(status int, args ...string) string {
	m.t.Helper()
	cmd := m.inside(binary, args...)
	// No other cluster of the user.
	cmd.Env = append(os.Environ(), "HOME="+m.t.TempDir(), "KUBECONFIG=")
	out, err := cmd.CombinedOutput()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		m.t.Fatalf("knarr %s: %v", strings.Join(args, " "), err)
	}
	if got != status {
		m.t.Fatalf("knarr %s: exit status %d, want %d:\n%s", strings.Join(args, " "), got, status, out)
	}
	return string(out)
}

// wantParts fails the test unless the text contains all parts.
func (m *machine) wantParts(text string, parts ...string) {
	m.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			m.t.Fatalf("wanted %q in:\n%s", part, text)
		}
	}
}

// TestABackgroundClusterIsStartedStoppedAndPurged starts a cluster in the background with its own
// places, inspects it, stops it, starts it again and purges it. After the first start it types only
// the cluster's name or data folder.
func TestABackgroundClusterIsStartedStoppedAndPurged(t *testing.T) {
	c := newCluster(t)
	name := fmt.Sprintf("harbour-%d", os.Getpid())
	c.dir = filepath.Join(filepath.Dir(c.dir), name)
	runDir := filepath.Join(filepath.Dir(c.dir), "run")

	c.wantParts(c.knarr(3, "status", "--data-dir", c.dir), "there is no such folder")
	start := []string{"up", "--detach", "--data-dir", c.dir, "--run-dir", runDir, "--cgroup-root", c.cgroup(), "--node-name", "one", "--listen", "0.0.0.0:7443"}
	c.wantParts(c.knarr(0, start...), "container runtime", "ready in", "in the background: process", "knarr stop "+name)
	c.wantParts(c.knarr(1, start...), "another knarr (`knarr up`, process", "since 20")
	other := filepath.Join(filepath.Dir(c.dir), "other")
	c.wantParts(c.knarr(1, "up", "--detach", "--data-dir", other, "--cgroup-root", c.cgroup(), "--listen", "0.0.0.0:7443"), name)
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed start has left its folder: %v", err)
	}

	c.wantParts(c.knarr(0, "ls"), name+" ", "running", c.dir)
	c.eventually(time.Minute, "the cluster is healthy", func() error {
		out, err := c.inside(binary, "status", name).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	c.wantParts(c.knarr(0, "status", name), "healthy, running since", "https://127.0.0.1:7443", "one is Ready", "knarr stop "+name)
	var report struct {
		Healthy bool
		PID     int
		Parts   []struct{ Name, Health string }
	}
	if err := json.Unmarshal([]byte(c.knarr(0, "status", "-o", "json", "--data-dir", c.dir)), &report); err != nil || !report.Healthy || report.PID == 0 || len(report.Parts) < 6 {
		t.Errorf("%+v, %v", report, err)
	}
	c.wantParts(c.knarr(0, "logs", name), "knarr      | time=", "msg=ready")
	c.wantParts(c.knarr(0, "token", "create", "--data-dir", c.dir), "https://192.168.88.1:7443")
	c.loadProgram("e2e/sailor:v1", "./sailor")
	c.wantParts(c.knarr(0, "image", "ls", "--data-dir", name), "e2e/sailor")
	c.apply(`{apiVersion: v1, kind: Pod, metadata: {name: sailor}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: sailor, image: "e2e/sailor:v1"}]}}`)
	c.kubectl("wait", "--for=condition=Ready", "pod/sailor", "--timeout=60s")
	c.wantParts(c.knarr(0, "status", name), "1 running")

	c.wantParts(c.knarr(0, "stop", name), "stopped after", "go on running")
	c.wantParts(c.knarr(0, "stop", name), "does not run")
	c.wantParts(c.knarr(3, "status", name), "was stopped at", "knarr up --data-dir "+c.dir+" --detach")
	c.wantParts(c.knarr(1, "kubectl", "--data-dir", name, "get", "pods"), "does not run", "knarr up --data-dir "+c.dir)
	c.wantParts(c.knarr(0, "kubectl", "--data-dir", name, "version", "--client"), "Client Version")

	c.wantParts(c.knarr(0, "up", "--detach", "--data-dir", c.dir), "as at the last start", "--listen 0.0.0.0:7443", "ready in")
	c.wantParts(c.kubectl("get", "pod", "sailor"), "1/1")
	c.wantParts(c.knarr(0, "stop", "--pods", name), "pods stopped: 1")
	c.knarr(0, "up", "-d", "--data-dir", c.dir)
	c.eventually(time.Minute, "the pod that was stopped runs again", func() error {
		if out := c.kubectl("get", "pod", "sailor", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}"); out != "1 true" {
			return errors.New(out)
		}
		return nil
	})

	// A killed cluster differs from a stopped one.
	if err := json.Unmarshal([]byte(c.knarr(0, "status", "-o", "json", name)), &report); err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(report.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.eventually(time.Minute, "the crash is seen", func() error {
		if out, _ := c.inside(binary, "status", name).CombinedOutput(); !strings.Contains(string(out), "ended without a word") {
			return errors.New(string(out))
		}
		return nil
	})
	c.wantParts(c.knarr(0, "ls"), "crashed")

	c.wantParts(c.knarr(0, "purge", "--yes", name), "removed the cluster in "+c.dir)
	for _, dir := range []string{c.dir, runDir, filepath.Join("/run/knarr/clusters", name)} {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	c.wantParts(c.knarr(3, "status", name), "no cluster has the name")
	precious := filepath.Join(filepath.Dir(c.dir), "precious")
	if err := os.MkdirAll(filepath.Join(precious, "letters"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.wantParts(c.knarr(1, "purge", "--yes", "--data-dir", precious), "not a data folder of knarr")
	if _, err := os.Stat(filepath.Join(precious, "letters")); err != nil {
		t.Error(err)
	}
}

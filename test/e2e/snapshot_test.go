package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSnapshot saves a snapshot while the server runs, purges the cluster and restores it. The
// saved objects are back, their pods run again, and later changes are gone. It takes a second
// snapshot from the folder of a stopped server.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	sailor := c.loadProgram("e2e/sailor:v1", "./sailor")
	c.apply(tavern)
	c.kubectl("rollout", "status", "deployment/tavern", "--timeout=60s")
	file := filepath.Join(t.TempDir(), "saved.db")
	c.snapshot("save", file)
	c.kubectl("create", "configmap", "afterthought")
	before := c.revision()
	if out := c.snapshot("ls", file); !strings.Contains(out, "REVISION") || !strings.Contains(out, file) {
		t.Errorf("snapshot ls:\n%s", out)
	}
	if out, err := c.trySnapshot("restore", file); err == nil || !strings.Contains(out, "another knarr") {
		t.Errorf("a restore below a running server: %v\n%s", err, out)
	}

	c.stop(syscall.SIGKILL)
	c.purge()
	c.snapshot("restore", file)
	c.up()
	c.loadImage("e2e/sailor:v1", sailor)
	c.kubectl("rollout", "status", "deployment/tavern", "--timeout=60s")
	if out, err := c.tryKubectl("", "get", "configmap", "afterthought"); err == nil {
		t.Errorf("objects created after the snapshot: %s", out)
	}
	if now := c.revision(); now <= before+500_000_000 {
		t.Errorf("resourceVersion is %d after the restore, was %d before", now, before)
	}
	c.checkOldWatch(before)
	// New pods get tokens, names and addresses as before.
	c.kubectl("scale", "deployment/tavern", "--replicas=3")
	c.kubectl("rollout", "status", "deployment/tavern", "--timeout=60s")

	c.kubectl("create", "configmap", "second-thought")
	c.stop(syscall.SIGTERM)
	c.snapshot("save") // offline, with a default name
	if out := c.snapshot("ls"); strings.Count(out, "snapshots/knarr-") != 1 {
		t.Errorf("snapshot ls:\n%s", out)
	}
	if out, err := c.trySnapshot("restore", file); err == nil || !strings.Contains(out, "--force") {
		t.Errorf("a restore over a store: %v\n%s", err, out)
	}
	own, err := filepath.Glob(filepath.Join(c.dir, "snapshots", "*.db"))
	if err != nil || len(own) != 1 {
		t.Fatalf("snapshots: %v, %v", own, err)
	}
	c.snapshot("restore", "--force", own[0])
	c.up() // adopts the pods, which have kept running
	c.kubectl("get", "configmap", "second-thought")
	c.kubectl("rollout", "status", "deployment/tavern", "--timeout=60s")

	if err := os.WriteFile(file, []byte("not a snapshot, but long enough to hold a hash"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := c.trySnapshot("ls", file); err == nil || !strings.Contains(out, "damaged") {
		t.Errorf("snapshot ls of a damaged file: %v\n%s", err, out)
	}
}

func (c *cluster) snapshot(args ...string) string {
	c.t.Helper()
	out, err := c.trySnapshot(args...)
	if err != nil {
		c.t.Fatalf("snapshot %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) trySnapshot(args ...string) (string, error) {
	out, err := c.inside(binary, append([]string{"snapshot", "--data-dir", c.dir}, args...)...).CombinedOutput()
	return string(out), err
}

// revision returns the resourceVersion of a new list.
func (c *cluster) revision() int64 {
	c.t.Helper()
	var n int64
	_, rest, _ := strings.Cut(c.kubectl("get", "--raw", "/api/v1/configmaps?limit=1"), `"resourceVersion":"`)
	if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
		c.t.Fatalf("no resourceVersion in %q", rest)
	}
	return n
}

// checkOldWatch checks that a watch from a revision before the restore must list again.
func (c *cluster) checkOldWatch(revision int64) {
	c.t.Helper()
	// kubectl ends when the server ends the watch.
	out, _ := c.tryKubectl("", "get", "--raw", fmt.Sprintf("/api/v1/configmaps?watch=1&timeoutSeconds=3&resourceVersion=%d", revision))
	if !strings.Contains(out, "too old resource version") {
		c.t.Errorf("a watch from the earlier revision %d returns %s", revision, out)
	}
}

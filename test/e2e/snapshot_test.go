package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSnapshot: what was saved while the server ran is there again after the machine's cluster was purged, its pods run
// again, and what happened in between is not remembered. A second snapshot is taken from the folder of a server that is stopped.
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
		t.Errorf("what was made after the snapshot: %s", out)
	}
	if now := c.revision(); now <= before+500_000_000 {
		t.Errorf("resourceVersion is %d after the restore, was %d before", now, before)
	}
	c.checkOldWatch(before)
	// New pods get tokens, names and addresses as ever.
	c.kubectl("scale", "deployment/tavern", "--replicas=3")
	c.kubectl("rollout", "status", "deployment/tavern", "--timeout=60s")

	c.kubectl("create", "configmap", "second-thought")
	c.stop(syscall.SIGTERM)
	c.snapshot("save") // offline, under a name of its own
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
	c.up() // adopts the pods that have gone on
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

// revision is the resourceVersion of a list of now.
func (c *cluster) revision() int64 {
	c.t.Helper()
	var n int64
	_, rest, _ := strings.Cut(c.kubectl("get", "--raw", "/api/v1/configmaps?limit=1"), `"resourceVersion":"`)
	if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
		c.t.Fatalf("no resourceVersion in %q", rest)
	}
	return n
}

// checkOldWatch: who watches from a revision of before is told to list again.
func (c *cluster) checkOldWatch(revision int64) {
	c.t.Helper()
	// kubectl ends when the server ends the watch.
	out, _ := c.tryKubectl("", "get", "--raw", fmt.Sprintf("/api/v1/configmaps?watch=1&timeoutSeconds=3&resourceVersion=%d", revision))
	if !strings.Contains(out, "too old resource version") {
		c.t.Errorf("a watch from revision %d of before gives %s", revision, out)
	}
}

package e2e

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRollback upgrades a cluster of one machine, writes, and goes back with `knarr rollback`. The
// program and the objects are those from before the upgrade, and old pods keep running.
func TestRollback(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ownProgram()
	c.up()
	c.loadProgram("e2e/sailor:v1", "./sailor")
	c.apply(tavern)
	c.kubectl("rollout", "status", "deployment/tavern", "--timeout=60s")
	c.kubectl("create", "configmap", "ledger", "--from-literal=page=1")
	before, containers := c.release(), c.containers()

	next := newerProgram(t, 1)
	if out, err := c.inside(c.knarrProgram, "upgrade", "--data-dir", c.dir, "--from", next).CombinedOutput(); err != nil {
		t.Fatalf("upgrade: %v\n%s", err, out)
	}
	if now := c.release(); now == before {
		t.Fatalf("the upgrade has not replaced the program: it is %s", now)
	}
	c.checkContainers(containers)
	c.kubectl("patch", "configmap", "ledger", "-p", `{"data":{"page":"2"}}`)
	c.kubectl("create", "configmap", "afterthought")
	c.kubectl("scale", "deployment/tavern", "--replicas=3")
	c.kubectl("rollout", "status", "deployment/tavern", "--timeout=60s")

	c.stop(syscall.SIGTERM)
	if out := c.rollback(); !strings.Contains(out, "nothing is changed yet") {
		t.Errorf("rollback says\n%s", out)
	}
	if out := c.rollback("--yes"); !strings.Contains(out, "done; the store that was there") {
		t.Errorf("rollback --yes says\n%s", out)
	}
	if now := c.release(); now != before {
		t.Errorf("the program is %s, was %s", now, before)
	}
	c.up()
	if page := c.kubectl("get", "configmap", "ledger", "-o", "jsonpath={.data.page}"); page != "1" {
		t.Errorf("page %s of the ledger, want that of before the upgrade", page)
	}
	if out, err := c.tryKubectl("", "get", "configmap", "afterthought"); err == nil {
		t.Errorf("an object from after the upgrade is there: %s", out)
	}
	c.checkContainers(containers)
	c.eventually(time.Minute, "pods from after the upgrade end", func() error {
		_, err := c.tryKubectl("", "wait", "--for=jsonpath={.status.replicas}=2", "deployment/tavern", "--timeout=1s")
		return err
	})
	if out := c.kubectl("get", "--raw", "/knarr/v1/upgrade"); strings.Contains(out, `"order"`) {
		t.Errorf("the upgrade would be continued: %s", out)
	}
}

// release returns the version of the machine's program.
func (m *machine) release() string {
	m.t.Helper()
	out, err := exec.Command(m.knarrProgram, "version").Output()
	if err != nil {
		m.t.Fatal(err)
	}
	return string(out)
}

func (m *machine) rollback(flags ...string) string {
	m.t.Helper()
	out, err := m.inside(m.knarrProgram, append([]string{"rollback", "--data-dir", m.dir}, flags...)...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("rollback: %v\n%s", err, out)
	}
	return string(out)
}

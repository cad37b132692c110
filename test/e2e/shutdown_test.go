package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/kubelet/fake"
)

// TestAShutdownOfTheMachineEndsPods gives the machine a logind that announces a shutdown. It is not
// parallel: the address of the bus is in the environment.
func TestAShutdownOfTheMachineEndsPods(t *testing.T) {
	needs(t)
	address := fake.Bus(t)
	logind := fake.NewLogind(t, address)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "node.yaml")
	config := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nshutdownGracePeriod: 5s\nshutdownGracePeriodCriticalPods: 2s\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("up", "--kubelet-config", file)
	c.loadProgram("harbour/store:v1", "../../examples/harbour/store")
	c.apply(pinnedPod("one", "{}"))
	c.kubectl("wait", "pod/one", "--for=condition=Ready", "--timeout=60s")
	// A plain restart ends no pod.
	before := c.kubectl("get", "pod", "one", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	c.stop(syscall.SIGTERM)
	c.start("up", "--kubelet-config", file)
	c.kubectl("wait", "node/one", "--for=condition=Ready", "--timeout=60s")
	if after := c.kubectl("get", "pod", "one", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].containerID}"); after != "Running "+before {
		t.Errorf("after a restart: %s, before it %s", after, before)
	}
	logind.AwaitLocks(t, 2) // one of each start
	announced := time.Now()
	logind.Announce(t, true)
	logind.AwaitRelease(t)
	t.Logf("the machine may go down %s after the announcement", time.Since(announced).Round(time.Millisecond))
	if got := c.kubectl("get", "pod", "one", "-o", "jsonpath={.status.phase} {.status.reason}"); got != "Failed Terminated" {
		t.Errorf("the pod is %s", got)
	}
	c.kubectl("wait", "node/one", "--for=condition=Ready=false", "--timeout=60s")
	if got := c.kubectl("get", "node", "one", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`); !strings.Contains(got, "node is shutting down") {
		t.Errorf("the node says %s", got)
	}
	logind.Announce(t, false)
	c.kubectl("wait", "node/one", "--for=condition=Ready", "--timeout="+time.Minute.String())
}

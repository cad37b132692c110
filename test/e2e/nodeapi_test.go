package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheNodesAPIAnswersByTheSettings asks a node through the API server: for logs of a service,
// for profiles that are off, and for a checkpoint.
func TestTheNodesAPIAnswersByTheSettings(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "node.yaml")
	config := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nenableSystemLogQuery: true\nenableProfilingHandler: false\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("up", "--kubelet-config", file)
	const node = "/api/v1/nodes/one/proxy"
	if got := c.kubectl("get", "--raw", node+"/logs/?query=knarr-has-no-such-service"); !strings.Contains(got, "error: logs of knarr-has-no-such-service: neither the journal nor /var/log has them") {
		t.Errorf("logs of a service that does not exist: %s", got)
	}
	if out, err := c.tryKubectl("", "get", "--raw", node+"/logs/?query=a&tailLines=-1"); err == nil || !strings.Contains(out, "tailLines") {
		t.Errorf("a wrong query: %v %s", err, out)
	}
	if out, err := c.tryKubectl("", "get", "--raw", node+"/debug/pprof/cmdline"); err == nil || !strings.Contains(out, "MethodNotAllowed") {
		t.Errorf("profiles that are off: %v %s", err, out)
	}
	c.loadProgram("harbour/store:v1", "../../examples/harbour/store")
	c.apply(pinnedPod("one", "{}"))
	c.kubectl("wait", "pod/one", "--for=condition=Ready", "--timeout=60s")
	out, err := c.tryKubectl("{}", "create", "--raw", node+"/checkpoint/default/one/one", "-f", "-")
	if _, missing := exec.LookPath("criu"); missing != nil && (err == nil || !strings.Contains(out, "criu binary not found")) {
		t.Errorf("a checkpoint without CRIU: %v %s", err, out)
	}
	c.kubectl("delete", "pod", "one", "--timeout=60s")
}

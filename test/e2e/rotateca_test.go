package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTheCAIsReplacedUnderANode replaces the cluster's CA while a pod runs on a joined node. The
// server is killed between the steps. A machine joins with a token from before. The pod's container
// is not restarted, and logs and exec work after each step.
func TestTheCAIsReplacedUnderANode(t *testing.T) {
	f := newFleet(t)
	f.addWorkers("east")
	east := f.workers[0]
	f.loadProgram("e2e/sailor:v1", "./sailor", east)
	f.kubectl("run", "sailor", "--image", "e2e/sailor:v1", "--env", "POD_NAME=sailor")
	f.kubectl("wait", "--for=condition=Ready", "pod/sailor", "--timeout=60s")
	containers := func() string {
		return f.kubectl("get", "pod", "sailor", "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}")
	}
	before := containers()
	reach := func(step string) {
		t.Helper()
		f.eventually(time.Minute, step+": logs and exec work", func() error {
			out, logErr := f.tryKubectl("", "logs", "sailor")
			if logErr == nil && !strings.Contains(out, "listening") {
				logErr = errors.New(out)
			}
			out, execErr := f.tryKubectl("", "exec", "sailor", "--", "/sailor", "env", "POD_NAME")
			if execErr == nil && strings.TrimSpace(out) != "sailor" {
				execErr = errors.New(out)
			}
			return errors.Join(logErr, execErr)
		})
		f.waitReady(east, "True")
		if after := containers(); after != before {
			t.Errorf("%s: the pod's container was %s and is %s", step, before, after)
		}
	}
	certificates := func(args ...string) string {
		t.Helper()
		out, err := f.inside(binary, append([]string{"certificates"}, append(args, "--data-dir", f.dir)...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("certificates %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("certificates %s:\n%s", strings.Join(args, " "), out)
		return string(out)
	}
	reach("before")
	old := filepath.Join(t.TempDir(), "kubeconfig")
	data, err := os.ReadFile(f.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, data, 0o600); err != nil {
		t.Fatal(err)
	}
	withOld := func() error {
		out, err := f.inside(binary, "kubectl", "--kubeconfig", old, "get", "nodes").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}

	certificates("rotate-ca", "--timeout", "5m")
	reach("both are trusted")
	if err := withOld(); err != nil {
		t.Errorf("a kubeconfig from before: %v", err)
	}
	f.stop(syscall.SIGKILL)
	f.start("server", "--advertise-address", f.address(f.machine))
	reach("after a crash of the server")
	f.addWorker("west") // its token has the old CA's hash
	if out := certificates("ls"); strings.Count(out, "node east") != 2 {
		t.Errorf("the node's certificates are not listed:\n%s", out)
	}
	f.eventually(3*time.Minute, "all have followed", func() error {
		out := certificates("rotate-ca", "--status")
		if strings.Contains(out, "server ") || strings.Contains(out, "node ") {
			return errors.New(out)
		}
		return nil
	})
	certificates("rotate-ca", "--finish")
	reach("the old CA is not trusted")
	if err := withOld(); err == nil {
		t.Error("a kubeconfig of the old CA works")
	}
	east.stop(syscall.SIGKILL)
	f.token = ""
	f.join(east)
	reach("after a restart of the node")
	f.kubectl("delete", "pod", "sailor", "--timeout=60s")
}

package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNodeCertificatesAreRenewedWhileItWorks signs certificates for 20 seconds. The node outlives
// three certificates of each kind: it stays Ready, and logs and exec work. It is killed meanwhile,
// and finds its certificates again without a token.
func TestNodeCertificatesAreRenewedWhileItWorks(t *testing.T) {
	f := newFleet(t, "--cluster-signing-duration", "20s", "--node-monitor-grace-period", "20s")
	f.addWorkers("east")
	east := f.workers[0]
	f.loadProgram("e2e/sailor:v1", "./sailor", east)
	f.kubectl("run", "sailor", "--image", "e2e/sailor:v1", "--env", "POD_NAME=sailor")
	f.kubectl("wait", "--for=condition=Ready", "pod/sailor", "--timeout=60s")

	seen := map[string]map[string]bool{"node": {}, "kubelet": {}}
	look := func() error {
		for name, serials := range seen {
			file := filepath.Join(east.dir, "pki", name+".pem")
			pair, err := tls.LoadX509KeyPair(file, file)
			if err != nil {
				return err
			}
			serials[pair.Leaf.SerialNumber.String()] = true
		}
		if ready := f.kubectl("get", "node", "east", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); ready != "True" {
			t.Errorf("the node's condition Ready is %q", ready)
		}
		if n, m := len(seen["node"]), len(seen["kubelet"]); n < 3 || m < 3 {
			return fmt.Errorf("%d client and %d serving certificates were seen, want 3", n, m)
		}
		return nil
	}
	if err := look(); err == nil {
		t.Fatal("the first certificates count as renewed")
	}
	east.stop(syscall.SIGKILL)
	f.token = "" // the first join is enough
	f.join(east)
	f.eventually(2*time.Minute, "the certificates are renewed twice", look)
	f.eventually(time.Minute, "logs and exec work", func() error {
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
	f.kubectl("delete", "pod", "sailor", "--timeout=60s")
}

// TestANodesNameBelongsToItsMachine joins a second machine under the same name. It is refused with
// the remedy, and the first machine's pods are not disturbed. A machine without its data folder can
// join again once its Node is deleted. If the Node of a working machine is deleted, it registers
// again.
func TestANodesNameBelongsToItsMachine(t *testing.T) {
	f := newFleet(t)
	f.addWorkers("east")
	east := f.workers[0]
	f.loadProgram("e2e/sailor:v1", "./sailor", east)
	f.kubectl("run", "sailor", "--image", "e2e/sailor:v1")
	f.kubectl("wait", "--for=condition=Ready", "pod/sailor", "--timeout=60s")
	before := f.kubectl("get", "pod", "sailor", "-o", "jsonpath={.status.containerStatuses}")

	const remedy = `node "east" belongs to another machine: join with another --node-name, or, if that machine is gone for good or has lost its data folder, run ` + "`kubectl delete node east` and join again"
	refused := func(m *machine) {
		t.Helper()
		command := m.inside("timeout", "60", binary, "node", "--data-dir", m.dir, "--cgroup-root", m.cgroup(), "--node-name", "east", "--advertise-address", f.address(m),
			"--join", "https://"+f.address(f.machine)+":6443", "--token", f.token)
		if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), remedy) {
			t.Errorf("joining as another machine's node: %v\n%s", err, out)
		}
	}
	twin := newMachine(t, "twin")
	f.plug(twin)
	refused(twin)
	if after := f.kubectl("get", "pod", "sailor", "-o", "jsonpath={.status.containerStatuses}"); after != before {
		t.Errorf("the pod's status was %s and is %s", before, after)
	}

	uid := f.kubectl("get", "node", "east", "-o", "jsonpath={.metadata.uid}")
	f.kubectl("delete", "node", "east")
	f.eventually(time.Minute, "the node registers again", func() error {
		now, err := f.tryKubectl("", "get", "node", "east", "-o", "jsonpath={.metadata.uid}")
		if err == nil && now == uid {
			err = errors.New("it is still the old one")
		}
		return err
	})
	if !strings.Contains(east.log.String(), "the node was deleted from the cluster while it works; registering it again") {
		t.Errorf("the node agent does not log that it registers again:\n%s", tail(east.log.String(), 20))
	}
	f.waitReady(east, "True")
	refused(twin)

	east.stop(syscall.SIGTERM)
	east.purge() // its data folder is lost
	refused(east)
	f.kubectl("delete", "node", "east")
	f.join(east)
	refused(twin)
}

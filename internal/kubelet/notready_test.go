package kubelet

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// This test runs in a mount namespace that hides the cgroups.
func TestANodeWithoutCgroupsIsNotReady(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const inside = "KNARR_TEST_IN_MOUNT_NAMESPACE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("in a mount namespace: %v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(b *bench) {
		b.cfg.NoCgroups, b.cfg.CgroupRoot = false, fmt.Sprintf("/knarr-kubelet-%d", os.Getpid())
	})
	c := b.nodeReady(corev1.ConditionFalse)
	if c.Reason != "KubeletNotReady" || !strings.Contains(c.Message, "cgroups cannot be made") {
		t.Errorf("condition %+v", c)
	}
}

func TestANodeWhoseRuntimeOrNetworkIsNotReadyIsNotReady(t *testing.T) {
	for condition, message := range map[string]string{
		runtimeapi.RuntimeReady: "container runtime not ready: RuntimeReady=false reason:Faked message:not yet",
		runtimeapi.NetworkReady: "container runtime network not ready: NetworkReady=false reason:Faked message:not yet",
	} {
		t.Run(condition, func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.cri.Unready(condition) })
			if c := b.nodeReady(corev1.ConditionFalse); c.Reason != "KubeletNotReady" || !strings.HasPrefix(c.Message, message) {
				t.Errorf("condition %+v", c)
			}
			b.cri.Unready("")
			b.nodeReady(corev1.ConditionTrue)
		})
	}
}

// nodeReady waits until the node's Ready condition has the given status.
func (b *bench) nodeReady(want corev1.ConditionStatus) corev1.NodeCondition {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		n, err := client.Get[*corev1.Node](b.t.Context(), b.api, "", b.cfg.NodeName)
		if err == nil {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == want {
					return c
				}
			}
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the node's Ready is not %s: %+v, %v", want, n, err)
		}
	}
}

//go:build inprocess

package runc

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A pod's containers share the sandbox's user namespace, whose mappings a helper process reads. The
// shim's reaper must not take the helper's exit status.
func TestTheReaperLeavesTheHelperOfAUserNamespaceAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	sandbox := exec.Command("sleep", "1000")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65536, Size: 65536}}
	sandbox.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Pdeathsig: unix.SIGKILL}
	died := make(chan os.Signal, 32)
	signal.Notify(died, unix.SIGCHLD)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range died {
			_ = Reap(func() error {
				for {
					if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 {
						return err
					}
				}
			})
		}
	}()
	defer func() { signal.Stop(died); close(died); <-ended }()
	if err := sandbox.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sandbox.Process.Kill(); _ = sandbox.Wait() }()
	for i := 0; i < 50; i++ {
		spec := &specs.Spec{Root: &specs.Root{Path: "/"}, Linux: &specs.Linux{
			CgroupsPath: "/knarr-test/x",
			Namespaces:  []specs.LinuxNamespace{{Type: specs.UserNamespace, Path: fmt.Sprintf("/proc/%d/ns/user", sandbox.Process.Pid)}},
		}}
		config, err := newConfig("x", t.TempDir(), spec, &CreateOpts{})
		if err != nil {
			t.Fatal(err)
		}
		if len(config.UIDMappings) != 1 || config.UIDMappings[0].HostID != 65536 {
			t.Fatalf("mappings %+v", config.UIDMappings)
		}
	}
}

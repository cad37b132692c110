package driver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"golang.org/x/sys/unix"
)

// serve starts a driver and returns its socket's address.
func serve(t *testing.T, options Options) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // short, because the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unmountBelow(t, dir)
		os.RemoveAll(dir)
	})
	options.Endpoint, options.StateDir = filepath.Join(dir, "csi.sock"), filepath.Join(dir, "state")
	options.Name, options.NodeID = "disk.example.com", "node-1"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	d, err := New(options, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := listen(options.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- d.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return options.Endpoint
}

func unmountBelow(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTheDriverPassesTheSanitySuite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the driver mounts; run the test as root")
	}
	config := sanity.NewTestConfig()
	dir := t.TempDir()
	config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	config.Address = serve(t, Options{
		Attach: true, Topology: true, Expansion: true, NodeExpansion: true, CheckLifecycle: true, Modify: true,
		Mutable: []string{"speed"}, MaxVolumes: 5, Capacity: 100 << 30,
	})
	config.TestVolumeSize, config.TestVolumeExpandSize = 1<<20, 2<<20
	config.TestNodeVolumeAttachLimit = true
	config.TestVolumeMutableParameters = map[string]string{"speed": "high"}
	t.Cleanup(func() { unmountBelow(t, dir) })
	sanity.Test(t, config)
}

func TestTheProxyJoinsCallersWithAnswers(t *testing.T) {
	dir := t.TempDir()
	callers, err := net.Listen("unix", filepath.Join(dir, "csi.sock"))
	if err != nil {
		t.Fatal(err)
	}
	answers, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- join(ctx, callers, answers, io.Discard) }()
	// The answer connects first, as a test does through a forwarded port.
	answer, err := net.Dial("tcp", answers.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	caller, err := net.Dial("unix", callers.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]net.Conn{{caller, answer}, {answer, caller}} {
		fmt.Fprintln(pair[0], "hello")
		if line, err := bufio.NewReader(pair[1]).ReadString('\n'); line != "hello\n" {
			t.Errorf("got %q, %v", line, err)
		}
	}
	caller.Close()
	if _, err := answer.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the caller has closed, the answer reads %v, want EOF", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///csi/csi.sock": "/csi/csi.sock", "/csi/csi.sock": "/csi/csi.sock", "unix:/a": "/a", "unix://tmp/csi.sock": "/tmp/csi.sock", "tcp://:1": "", "": "",
	} {
		if got, err := socketOf(endpoint); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", endpoint, got, err)
		}
	}
}

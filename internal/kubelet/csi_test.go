package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar announces a CSI driver.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	told chan *registerapi.RegistrationStatus
}

func (r *registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: "disk.example.com", Endpoint: "/plugins/disk/csi.sock", SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	r.told <- s
	return &registerapi.RegistrationStatusResponse{}, nil
}

// csiDrivers records calls.
type csiDrivers struct{ calls chan string }

func (d csiDrivers) RegisterDriver(_ context.Context, name, endpoint, socket string, versions []string) error {
	d.calls <- "register " + name + " " + endpoint + " " + filepath.Base(socket) + " " + versions[0]
	return nil
}

func (d csiDrivers) DeregisterDriver(ctx context.Context, name, socket string) {
	call := "deregister " + name + " " + filepath.Base(socket)
	if ctx.Err() != nil {
		call += " at the end"
	}
	d.calls <- call
}

func TestCSIDriversRegisterInTheFolderOfAllPlugins(t *testing.T) {
	dir, err := os.MkdirTemp("", "kub") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	drivers := csiDrivers{make(chan string, 10)}
	newBench(t, func(b *bench) { b.cfg.RootDir, b.cfg.CSI = dir, drivers })
	registry := filepath.Join(dir, "plugins_registry")
	if err := os.MkdirAll(registry, 0o750); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(registry, "disk-reg.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, r := grpc.NewServer(), &registrar{told: make(chan *registerapi.RegistrationStatus, 10)}
	registerapi.RegisterRegistrationServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	want := func(call string) {
		t.Helper()
		select {
		case got := <-drivers.calls:
			if got != call {
				t.Errorf("the call is %q, want %q", got, call)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no call %q", call)
		}
	}
	want("register disk.example.com /plugins/disk/csi.sock disk-reg.sock 1.0.0")
	if s := <-r.told; !s.PluginRegistered {
		t.Errorf("the driver is told %v", s)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	want("deregister disk.example.com disk-reg.sock")
}

package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"google.golang.org/protobuf/proto"
)

func TestAContainerBelongsToItsSandbox(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"a sandbox is its own pod":           {`{}`, "x"},
		"a container has its sandbox's shim": {`{"annotations":{"io.kubernetes.cri.sandbox-id":"s"}}`, "s"},
		"other annotations are ignored":      {`{"annotations":{"a":"b"}}`, "x"},
	} {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := podOf(path, "x"); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestArgumentsAndInputOfARequestMustAgree(t *testing.T) {
	input, err := proto.Marshal(&bootapi.BootstrapParams{InstanceID: "x", Namespace: "k8s.io", ContainerdGrpcAddress: "/run/c.sock"})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-namespace", "k8s.io", "-address", "/run/c.sock", "-publish-binary", "/bin/c", "-id", "x", "-debug", "start"}
	params, debug, err := request(args, bytes.NewReader(input))
	if err != nil || !debug || params.ContainerdGrpcAddress != "/run/c.sock" {
		t.Errorf("request: %v, %v, %v", params, debug, err)
	}
	args[7] = "y"
	if _, _, err := request(args, bytes.NewReader(input)); err == nil {
		t.Error("a request for another container than the arguments': no error")
	}
	if _, _, err := request(args, bytes.NewReader([]byte("{"))); err == nil {
		t.Error("an invalid request: no error")
	}
}

func TestOnlyOneShimListens(t *testing.T) {
	dir, err := os.MkdirTemp("", "knarr-shim") // the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := "unix://" + filepath.Join(dir, "socket")
	first, err := listen(address)
	if err != nil || first == nil {
		t.Fatalf("listen: %v, %v", first, err)
	}
	go func() {
		for {
			conn, err := first.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	if second, err := listen(address); err != nil || second != nil {
		t.Errorf("while a shim lives: %v, %v; want no listener", second, err)
	}
	first.SetUnlinkOnClose(false)
	first.Close()
	third, err := listen(address)
	if err != nil || third == nil {
		t.Fatalf("after a shim was killed: %v, %v; want a new listener", third, err)
	}
	defer third.Close()
	if conn, err := net.Dial("unix", filepath.Join(dir, "socket")); err != nil {
		t.Errorf("dial: %v", err)
	} else {
		conn.Close()
	}
}

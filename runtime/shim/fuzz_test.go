package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"google.golang.org/protobuf/proto"
)

// FuzzRequest parses requests that no containerd made. A request that is accepted agrees with the
// arguments, and so does the shim that serves it.
func FuzzRequest(f *testing.F) {
	input, err := proto.Marshal(&bootapi.BootstrapParams{InstanceID: "x", Namespace: "k8s.io", ContainerdGrpcAddress: "/run/c.sock", SocketDir: proto.String("/run/s")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("-namespace k8s.io -address /run/c.sock -publish-binary /bin/c -id x -debug start", input)
	f.Add("-id x -namespace k8s.io -bundle= start", input[:len(input)/2])
	f.Add("-id= -namespace", []byte{})
	f.Add("-h", []byte("{"))
	f.Fuzz(func(t *testing.T, args string, input []byte) {
		fields := strings.Fields(args)
		params, _, err := request(fields, bytes.NewReader(input))
		if err != nil {
			return
		}
		if params.InstanceID == "" {
			t.Error("a request without a container was accepted")
		}
		given := false
		for _, field := range fields {
			given = given || strings.Contains(field, params.InstanceID)
		}
		if !given {
			t.Errorf("the container %q is not in the arguments %q", params.InstanceID, args)
		}
	})
}

// FuzzPodOf reads the annotations of bundles that no containerd wrote.
func FuzzPodOf(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"annotations":{"io.kubernetes.cri.sandbox-id":"s"}}`, `{"annotations":null}`, `{"annotations":{"io.kubernetes.cri.sandbox-id":7}}`, "[]"} {
		f.Add(seed)
	}
	path := filepath.Join(f.TempDir(), "config.json")
	f.Fuzz(func(t *testing.T, config string) {
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if pod, err := podOf(path, "own"); err == nil && pod == "" {
			t.Error("the container has no pod")
		}
	})
}

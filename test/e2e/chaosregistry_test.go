package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const registryAddress = "192.168.88.1:5000"

// serveRegistry serves an image registry on the machine, from which pods pull.
func (n *nodeChaos) serveRegistry(program string) {
	n.t.Helper()
	listener, err := n.listen(registryAddress)
	if err != nil {
		n.t.Fatal(err)
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	go func() { _ = server.Serve(listener) }()
	n.t.Cleanup(func() { _ = server.Close() })
	n.usePlainRegistry(registryAddress)
	content, err := os.ReadFile(program)
	if err != nil {
		n.t.Fatal(err)
	}
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	err = w.WriteHeader(&tar.Header{Name: "sailor", Mode: 0o755, Size: int64(len(content))})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.layer, err = tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil })
	if err != nil {
		n.t.Fatal(err)
	}
}

// usePlainRegistry lets the machine's runtime pull from an address by plain HTTP.
func (m *machine) usePlainRegistry(address string) {
	m.t.Helper()
	dir := filepath.Join(m.dir, "registries", address)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(fmt.Sprintf("server = %q\n", "http://"+address)), 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// listen listens in the machine's network namespace.
func (m *machine) listen(address string) (net.Listener, error) {
	type result struct {
		listener net.Listener
		err      error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		var r result
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", m.space.pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if r.err = err; err == nil {
			r.listener, r.err = net.Listen("tcp4", address)
		}
		done <- r
	}()
	r := <-done
	return r.listener, r.err
}

// puller is a pod with an image of its own in the registry.
func (n *nodeChaos) puller(round int) *corev1.Pod {
	reference := fmt.Sprintf("%s/test/cargo:%d", registryAddress, round)
	if err := n.push(reference); err != nil && n.failed == nil {
		n.failed = fmt.Errorf("push %s: %w", reference, err)
	}
	return bare(fmt.Sprintf("puller-%d", round), reference, "serve")
}

func (n *nodeChaos) push(reference string) error {
	layers := []v1.Layer{n.layer}
	for range 3 {
		layer, err := random.Layer(1<<20, types.DockerLayer)
		if err != nil {
			return err
		}
		layers = append(layers, layer)
	}
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err == nil {
		image, err = mutate.Config(image, v1.Config{Entrypoint: []string{"/sailor"}})
	}
	if err != nil {
		return err
	}
	tag, err := name.NewTag(reference, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(tag, image, remote.WithTransport(&http.Transport{DialContext: n.dial}), remote.WithContext(n.t.Context()))
}

// Package registry is a small image registry on loopback. Tests pull images from it, and the
// runtime's mirrors can point to it. Blobs are on disk, manifests in memory. It has no
// authentication, so it refuses other addresses.
package registry

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is a running registry.
type Registry struct {
	// Address is host:port. A mirror's configuration uses "http://"+Address.
	Address string

	server *http.Server
	done   chan struct{}
}

// Start listens on the address and keeps blobs in dir until ctx ends; Wait then returns. Port 0
// selects a free port.
func Start(ctx context.Context, address, dir string) (*Registry, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start registry: %w", err)
	}
	if host := listener.Addr().(*net.TCPAddr); !host.IP.IsLoopback() {
		listener.Close()
		return nil, fmt.Errorf("start registry: %s is not a loopback address, and this registry has no authentication", address)
	}
	handler := registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)), registry.Logger(log.New(io.Discard, "", 0)))
	r := &Registry{
		Address: listener.Addr().String(),
		server:  &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		done:    make(chan struct{}),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.server.Serve(listener) // Close ends it
	}()
	go func() {
		defer close(r.done)
		<-ctx.Done()
		r.server.Close()
		<-served
	}()
	return r, nil
}

// Wait waits until the registry has ended.
func (r *Registry) Wait() { <-r.done }

// Push stores an image. repository is a path with a tag and without a host, for example
// "e2e-test-images/kitten:1.8".
func (r *Registry) Push(ctx context.Context, repository string, image v1.Image) error {
	reference, err := name.ParseReference(r.Address+"/"+repository, name.Insecure)
	if err != nil {
		return fmt.Errorf("push to registry: %w", err)
	}
	if err := remote.Write(reference, image, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("push %s to registry: %w", repository, err)
	}
	return nil
}

// Package registry is a small image registry for loopback: tests pull from it what must come from a registry, and the runtime's
// mirrors point to it. Its blobs lie on disk, its manifests in memory; it has no authentication and is not for other machines.
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
	// Address is host:port; "http://"+Address is what a mirror's configuration wants.
	Address string

	server *http.Server
	done   chan struct{}
}

// Start listens on the address (with port 0: any) and keeps blobs in dir until ctx ends; Wait then returns.
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
		_ = r.server.Serve(listener) // ends by Close, below
	}()
	go func() {
		defer close(r.done)
		<-ctx.Done()
		r.server.Close()
		<-served
	}()
	return r, nil
}

// Wait returns when the registry has ended.
func (r *Registry) Wait() { <-r.done }

// Push puts an image there; repository is a path with a tag and without a host, for example "e2e-test-images/kitten:1.8".
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

package fake

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
)

// plugin is what the device plugin and the driver share: a server on a socket, and a record of the
// calls.
type plugin struct {
	server *grpc.Server

	callsMu sync.Mutex
	calls   []string
}

// listen serves on a socket until Stop.
func (p *plugin) listen(socket string, register func(grpc.ServiceRegistrar)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	p.server = grpc.NewServer()
	register(p.server)
	go func() { _ = p.server.Serve(listener) }() // it ends with Stop
	return nil
}

// Stop ends the server and its streams, and removes the socket.
func (p *plugin) Stop() { p.server.Stop() }

// Calls returns the calls so far, such as "prepare one" or "Allocate [a b]".
func (p *plugin) Calls() []string {
	p.callsMu.Lock()
	defer p.callsMu.Unlock()
	return slices.Clone(p.calls)
}

func (p *plugin) called(what string) {
	p.callsMu.Lock()
	defer p.callsMu.Unlock()
	p.calls = append(p.calls, what)
}

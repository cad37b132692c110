// Package egresstest provides proxies for the protocols of package egress, for tests of connections
// through a proxy.
package egresstest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/knarr-project/knarr/internal/egress"
)

// Proxy records the requested addresses.
type Proxy struct {
	client.UnimplementedProxyServiceServer
	// Socket is the path of its socket.
	Socket string
	routes map[string]string

	mu    sync.Mutex
	asked []string
}

// New returns a proxy that does not listen yet. routes maps requested addresses to real ones; other
// addresses are dialed as requested.
func New(routes map[string]string) *Proxy { return &Proxy{routes: routes} }

// Konnectivity listens on a Socket and speaks konnectivity's protocol.
func Konnectivity(t testing.TB, routes map[string]string) *Proxy {
	t.Helper()
	p := New(routes)
	listener := p.Listen(t)
	server := grpc.NewServer()
	client.RegisterProxyServiceServer(server, p)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return p
}

// Connect listens on a Socket and speaks HTTP's CONNECT.
func Connect(t testing.TB, routes map[string]string) *Proxy {
	t.Helper()
	p := New(routes)
	server := httptest.NewUnstartedServer(p)
	_ = server.Listener.Close()
	server.Listener = p.Listen(t)
	server.Start()
	t.Cleanup(server.Close)
	return p
}

// Listen opens the Socket; the caller serves it.
func (p *Proxy) Listen(t testing.TB) net.Listener {
	t.Helper()
	// The test's folder may be too long for a socket's path.
	folder, err := os.MkdirTemp("", "egress")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	p.Socket = filepath.Join(folder, "proxy")
	listener, err := net.Listen("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// Asked returns the addresses requested since the last call.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.asked
	p.asked = nil
	return out
}

// Was reports whether an address was requested.
func (p *Proxy) Was(asked string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.asked, asked)
}

func (p *Proxy) dial(address string) (net.Conn, error) {
	p.mu.Lock()
	p.asked = append(p.asked, address)
	p.mu.Unlock()
	if real, ok := p.routes[address]; ok {
		address = real
	}
	return net.Dial("tcp", address)
}

// ServeHTTP implements http.Handler: CONNECT.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	there, err := p.dial(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = there.Close() }()
	here, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = here.Close() }()
	if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(here, there)
		_ = here.Close()
	})
	_, _ = io.Copy(there, in)
	_ = there.Close()
	back.Wait()
}

// Proxy implements konnectivity's service: a stream for each connection.
func (p *Proxy) Proxy(stream client.ProxyService_ProxyServer) error {
	var sending sync.Mutex
	send := func(packet *client.Packet) {
		sending.Lock()
		defer sending.Unlock()
		_ = stream.Send(packet) // a missing client ends the stream
	}
	const id = 7
	var there net.Conn
	var back sync.WaitGroup
	defer func() {
		if there != nil {
			_ = there.Close()
		}
		back.Wait()
	}()
	for {
		packet, err := stream.Recv()
		if err != nil {
			return nil
		}
		switch packet.Type {
		case client.PacketType_DIAL_REQ:
			request := packet.GetDialRequest()
			answer := &client.DialResponse{Random: request.Random, ConnectID: id}
			if there, err = p.dial(request.Address); err != nil {
				answer.Error = err.Error()
			}
			send(&client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{DialResponse: answer}})
			if err != nil {
				return nil
			}
			back.Go(func() {
				pump(there, send, id)
			})
		case client.PacketType_DATA:
			if _, err := there.Write(packet.GetData().Data); err != nil {
				return nil
			}
		case client.PacketType_CLOSE_REQ:
			_ = there.Close() // pump reports the end
		default:
			return fmt.Errorf("unexpected %s", packet.Type)
		}
	}
}

// pump sends the other side's data until that side ends.
func pump(there net.Conn, send func(*client.Packet), id int64) {
	for {
		data := make([]byte, 4096)
		n, err := there.Read(data)
		if n > 0 {
			send(&client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: id, Data: data[:n]}}})
		}
		if err != nil {
			send(&client.Packet{Type: client.PacketType_CLOSE_RSP, Payload: &client.Packet_CloseResponse{CloseResponse: &client.CloseResponse{ConnectID: id}}})
			return
		}
	}
}

// Selector returns a Selector that uses this proxy, by a protocol (HTTPConnect or GRPC), for the
// networks.
func (p *Proxy) Selector(t testing.TB, protocol string, networks ...egress.Network) *egress.Selector {
	t.Helper()
	text := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"
	for _, n := range networks {
		text += fmt.Sprintf("- {name: %s, connection: {proxyProtocol: %s, transport: {uds: {udsName: %s}}}}\n", n, protocol, p.Socket)
	}
	path := filepath.Join(t.TempDir(), "egress.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := egress.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

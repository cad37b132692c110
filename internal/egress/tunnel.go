package egress

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// tunnel is a konnectivity server. Each tunneled connection has its own stream and its own
// connection to the server, which end with it.
type tunnel struct{ socket string }

func (t *tunnel) reach(ctx context.Context) (func(context.Context, string) (net.Conn, error), error) {
	// The stream lives longer than the wait for it and than the request that started it.
	made, err := konnectivity.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), t.socket,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", t.socket)
		}),
		// The library itself uses these settings for this purpose.
		grpc.WithBlock(), grpc.WithReturnConnectionError(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := made.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &addressedConn{Conn: conn, remote: name(address)}, nil
	}, nil
}

// addressedConn adds addresses to the library's connections, because callers read them.
type addressedConn struct {
	net.Conn
	remote name
}

func (c *addressedConn) RemoteAddr() net.Addr { return c.remote }
func (c *addressedConn) LocalAddr() net.Addr  { return name("") }

// name is the requested address of the other end of a tunnel.
type name string

func (name) Network() string  { return "tcp" }
func (n name) String() string { return string(n) }

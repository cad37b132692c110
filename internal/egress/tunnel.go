package egress

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// tunnel is a konnectivity server. Each connection through it has a stream, and a connection to it, of its own, which end with it.
type tunnel struct{ socket string }

func (t *tunnel) reach(ctx context.Context) (func(context.Context, string) (net.Conn, error), error) {
	// The stream lives longer than the wait for it, and than the request that began it.
	made, err := konnectivity.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), t.socket,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", t.socket)
		}),
		grpc.WithBlock(), grpc.WithReturnConnectionError(), // the library's own settings for this
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := made.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &tunneled{Conn: conn, remote: name(address)}, nil
	}, nil
}

// tunneled has addresses, which the library's connections do not, and users of connections look at.
type tunneled struct {
	net.Conn
	remote name
}

func (c *tunneled) RemoteAddr() net.Addr { return c.remote }
func (c *tunneled) LocalAddr() net.Addr  { return name("") }

// name is the address of the other end of a tunnel as it was asked for.
type name string

func (name) Network() string  { return "tcp" }
func (n name) String() string { return string(n) }

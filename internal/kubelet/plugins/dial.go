package plugins

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// MaxMessage limits each message from a plugin.
const MaxMessage = 16 << 20

// Dial returns a connection to the gRPC server behind a socket on this machine. It does not wait
// until the server answers.
func Dial(socket string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage)),
		grpc.WithNoProxy(),
	}, options...)
	return grpc.NewClient("unix://"+socket, options...)
}

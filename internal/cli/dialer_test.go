package cli

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
)

// refuse is a dialer that always fails as if nothing listens.
func refuse(_ context.Context, network, _ string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

func dialError(t *testing.T, address string) error {
	t.Helper()
	_, err := refuse(t.Context(), "tcp", address)
	return err
}

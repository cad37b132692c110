package nettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddress is one of loopback with a port that nobody has, for a server that listens there later, or again and again. It is none of those that the kernel gives to
// whoever takes any, as each connection does: a client's could have it when the server wants it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const first, ports = 20000, 10000 // the kernel's begin at 32768, node ports at 30000
	var err error
	for range ports {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(ports))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port of loopback is free: ", err)
	return ""
}

package nettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

const firstPort, ports = 20000, 10000 // those that the kernel gives away begin at 32768, node ports at 30000

// lastPort is where the next free port is looked for: begun anywhere, so that processes do not meet.
var lastPort = func() *atomic.Int64 {
	last := &atomic.Int64{}
	last.Store(rand.Int64N(ports))
	return last
}()

// FreeAddress is one of loopback with a port that nobody has, and that nobody else in this process is given, for a server that listens there later, or again and again. It is
// none of those that the kernel gives to whoever takes any, as each connection does: a client's could have it when the server wants it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	var err error
	for range ports {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+lastPort.Add(1)%ports)); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port of loopback is free: ", err)
	return ""
}

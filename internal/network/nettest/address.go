package nettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// the kernel's ephemeral ports begin at 32768, node ports at 30000
const firstPort, ports = 20000, 10000

// lastPort is the port of the last search. It starts at a random port, so that processes do not
// collide.
var lastPort = func() *atomic.Int64 {
	last := &atomic.Int64{}
	last.Store(rand.Int64N(ports))
	return last
}()

// FreeAddress returns an unused loopback address and port. No other call in this process returns
// the same one, so a server can listen there later or repeatedly. The port is not an ephemeral
// port, which the kernel could give to a client's connection meanwhile.
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

package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

func nodePortObject(port int32, change func(*corev1.ServiceSpec)) *corev1.Service {
	return serviceObject("web", "10.43.0.80", func(s *corev1.ServiceSpec) {
		s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, port
		if change != nil {
			change(s)
		}
	})
}

func refusedHere(t *testing.T, what, addr string) {
	t.Helper()
	if got, err := nettest.Ask(addr); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%s: %q, %v; want connection refused", what, got, err)
	}
}

func TestNodePortsAnswerOnLocalhost(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	one, two := nettest.NewMachine(t, "10.42.0.11"), nettest.NewMachine(t, "10.42.1.12")
	one.Serve(t, 8080)
	two.Serve(t, 8080)
	neighbour := nettest.NewMachine(t, "192.0.2.7")
	objects.Put(nodePortObject(30080, nil))
	settled(t, p, "web")
	refusedHere(t, "a Service without endpoints", "127.0.0.1:30080")
	objects.Put(sliceObject("web", ep(one.IP, "here"), ep(two.IP, "there")))
	settled(t, p, "web")
	for _, addr := range []string{"127.0.0.1:30080", "[::1]:30080", "localhost:30080"} {
		seen := map[string]bool{}
		for range 40 {
			got, err := nettest.Ask(addr)
			if err != nil {
				t.Fatalf("%s: %v", addr, err)
			}
			seen[got] = true
		}
		if !seen["10.42.0.11 from 10.42.0.1"] || !seen["10.42.1.12 from 10.42.0.1"] || len(seen) != 2 {
			t.Errorf("answers at %s: %v", addr, seen)
		}
	}
	// Packets from a neighbour to 127.0.0.1 must not be answered.
	neighbour.In(t, func() {
		if c, err := net.DialTimeout("tcp", "127.0.0.1:30080", time.Second); err == nil {
			c.Close()
			t.Error("a neighbour's own localhost answers")
		}
	})
	objects.Put(nodePortObject(30081, nil))
	settled(t, p, "web")
	refusedHere(t, "its old port", "127.0.0.1:30080")
	if got, err := nettest.Ask("127.0.0.1:30081"); err != nil {
		t.Errorf("its new port: %q, %v", got, err)
	}
	objects.Remove(serviceObject("web", "", nil))
	settled(t, p, "web")
	refusedHere(t, "a deleted Service", "127.0.0.1:30081")
}

func TestARefusingEndpointIsSkippedOnLocalhost(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	alive, dead := nettest.NewMachine(t, "10.42.0.11"), nettest.NewMachine(t, "10.42.0.12")
	alive.Serve(t, 8080)
	objects.Put(nodePortObject(30080, nil))
	objects.Put(sliceObject("web", ep(alive.IP, "here"), ep(dead.IP, "here")))
	settled(t, p, "web")
	for range 10 {
		if got, err := nettest.Ask("127.0.0.1:30080"); err != nil || !strings.HasPrefix(got, alive.IP) {
			t.Errorf("answer %q, %v", got, err)
		}
	}
}

func TestSessionAffinityOnLocalhost(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	one, two := nettest.NewMachine(t, "10.42.0.11"), nettest.NewMachine(t, "10.42.0.12")
	one.Serve(t, 8080)
	two.Serve(t, 8080)
	objects.Put(nodePortObject(30080, func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }))
	objects.Put(sliceObject("web", ep(one.IP, "here"), ep(two.IP, "here")))
	settled(t, p, "web")
	seen := map[string]bool{}
	for range 20 {
		got, err := nettest.Ask("127.0.0.1:30080")
		must(t, err)
		seen[got] = true
	}
	if len(seen) != 1 {
		t.Errorf("answers of a Service with session affinity: %v", seen)
	}
}

func TestALocalhostConnectionIsBidirectionalAndOutlivesItsService(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	m := nettest.NewMachine(t, "10.42.0.11")
	var l net.Listener
	m.In(t, func() {
		var err error
		l, err = net.Listen("tcp4", ":8080")
		must(t, err)
	})
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 100)
		for {
			n, err := c.Read(buf)
			if err != nil { // the client has closed its direction
				_, _ = c.Write([]byte("bye"))
				return
			}
			_, _ = c.Write(buf[:n])
		}
	}()
	objects.Put(nodePortObject(30080, nil))
	objects.Put(sliceObject("web", ep(m.IP, "here")))
	settled(t, p, "web")
	c, err := net.Dial("tcp", "127.0.0.1:30080")
	must(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	echo := func(text string) {
		t.Helper()
		_, err := fmt.Fprint(c, text)
		must(t, err)
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		if err != nil || string(buf[:n]) != text {
			t.Errorf("%q, %v; want %q", buf[:n], err, text)
		}
	}
	echo("one")
	objects.Remove(serviceObject("web", "", nil))
	settled(t, p, "web")
	echo("two")
	must(t, c.(*net.TCPConn).CloseWrite())
	buf := make([]byte, 100)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "bye" {
		t.Errorf("%q, %v after the end of one direction", buf[:n], err)
	}
}

func TestABusyNodePortIsOpenedWhenItBecomesFree(t *testing.T) {
	objects := nettest.NewObjects()
	nettest.Need(t)
	l, err := net.Listen("tcp", "127.0.0.1:30080")
	must(t, err)
	p := start(t, objects)
	m := nettest.NewMachine(t, "10.42.0.11")
	m.Serve(t, 8080)
	objects.Put(nodePortObject(30080, nil))
	objects.Put(sliceObject("web", ep(m.IP, "here")))
	settled(t, p, "web")
	must(t, l.Close())
	nettest.Eventually(t, "the node port answers on localhost", func() bool {
		got, err := nettest.Ask("127.0.0.1:30080")
		return err == nil && strings.HasPrefix(got, m.IP)
	})
}

package traffic

import (
	"net"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

// BenchmarkConnection measures a UDP flow between two pods: without counting, counted, and with a
// listener of connection tracking's events. The metric is the processor time of this process and of
// the kernel on its behalf.
func BenchmarkConnection(b *testing.B) {
	nettest.Need(b)
	web, store := nettest.NewMachine(b, "10.42.0.2"), nettest.NewMachine(b, "10.42.0.3")
	_ = store
	var k kernel
	defer k.Close()
	for _, c := range []struct {
		name  string
		start func(b *testing.B) (stop func())
	}{
		{"uncounted", func(*testing.B) func() { return func() {} }},
		{"counted", func(b *testing.B) func() {
			if err := k.install(cluster); err != nil {
				b.Fatal(err)
			}
			return func() { _ = k.remove() }
		}},
		{"events", listen},
	} {
		b.Run(c.name, func(b *testing.B) {
			defer c.start(b)()
			var before, after unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
			web.In(b, func() {
				for i := range b.N {
					conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 42, 0, 3), Port: 1000 + i%50000})
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = conn.Write([]byte("x"))
					conn.Close()
				}
			})
			_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
			used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
		})
	}
}

// listen reads the events of new connections.
func listen(b *testing.B) func() {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := c.JoinGroup(unix.NFNLGRP_CONNTRACK_NEW); err != nil {
		b.Fatal(err)
	}
	_ = c.SetReadBuffer(16 << 20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := c.Receive(); err != nil {
				return
			}
		}
	}()
	return func() { c.Close(); <-done }
}

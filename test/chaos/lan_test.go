package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// lan is an Ethernet whose switch is this process. Each host has a network namespace with one TAP
// device, so a fault of a link is a rule for frames and needs no support of the kernel. The
// namespaces end with the process.
type lan struct {
	t     testing.TB
	hosts []*host
	wires map[[2]*host]chan frame

	mu    sync.Mutex // guards the fields below
	rules map[*rule]bool
	macs  map[[6]byte]*host
}

// host has a network namespace with an address on the LAN, and mounts of its own.
type host struct {
	name, address string
	namespace     netns.NsHandle
	tap           *os.File
	work          chan func() // runs on a thread in the namespace
	ended         chan struct{}
}

// rule returns what happens to a frame from one host to another one.
type rule struct {
	effect func(from, to *host) effect
}

// effect is a link's fault. The effects of all rules add up.
type effect struct {
	lost  bool
	delay time.Duration
}

// frame is a frame on its way.
type frame struct {
	due  time.Time
	data []byte
}

// ipv6 is the type of frames that the LAN does not carry.
var ipv6 = [2]byte{unix.ETH_P_IPV6 >> 8, unix.ETH_P_IPV6 & 0xff}

const (
	largestFrame = 1514
	// wireLength is the number of frames that a slow wire holds. More of them are lost.
	wireLength = 4096
)

// newLAN makes hosts with these names. Their addresses are 10.88.0.1 and so on.
func newLAN(t testing.TB, names ...string) *lan {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	l := &lan{t: t, wires: map[[2]*host]chan frame{}, rules: map[*rule]bool{}, macs: map[[6]byte]*host{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		for _, h := range l.hosts {
			h.end()
		}
		running.Wait()
	})
	for i, name := range names {
		h := &host{name: name, address: fmt.Sprintf("10.88.0.%d", i+1), work: make(chan func()), ended: make(chan struct{})}
		if err := h.begin(); err != nil {
			t.Fatalf("host %s: %v", name, err)
		}
		l.hosts = append(l.hosts, h)
	}
	for _, from := range l.hosts {
		for _, to := range l.hosts {
			if from == to {
				continue
			}
			wire := make(chan frame, wireLength)
			l.wires[[2]*host{from, to}] = wire
			running.Go(func() { carry(ctx, wire, to) })
		}
	}
	for _, h := range l.hosts {
		running.Go(func() { l.serve(h) })
	}
	return l
}

// begin makes the namespace on a thread that lives until end.
func (h *host) begin() error {
	made := make(chan error)
	go func() {
		defer close(h.ended)
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
		if err == nil { // mounts on the host stay there
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			h.namespace, err = netns.Get()
		}
		if err == nil {
			h.tap, err = openTAP("uplink")
		}
		made <- err
		for f := range h.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		return err
	}
	handle, err := netlink.NewHandleAt(h.namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	for name, address := range map[string]string{"lo": "", "uplink": h.address + "/24"} {
		link, err := handle.LinkByName(name)
		if err != nil {
			return err
		}
		if address != "" {
			parsed, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			if err := handle.AddrAdd(link, parsed); err != nil {
				return err
			}
		}
		if err := handle.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

func openTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// end removes the namespace. No process of the test may be in it.
func (h *host) end() {
	close(h.work)
	<-h.ended
	_ = h.tap.Close()
	_ = h.namespace.Close()
}

// do calls f on the thread in the namespace. Processes that f starts are in the namespace.
func (h *host) do(f func() error) error {
	result := make(chan error)
	h.work <- func() { result <- f() }
	return <-result
}

// dial connects from the namespace. Calls do not wait for each other.
func (h *host) dial(ctx context.Context, network, address string) (net.Conn, error) {
	type answer struct {
		conn net.Conn
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread does not serve other goroutines
		var a answer
		if a.err = netns.Set(h.namespace); a.err == nil {
			a.conn, a.err = (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: -1}).DialContext(ctx, network, address)
		}
		answers <- a
	}()
	a := <-answers
	if a.err != nil {
		return nil, &notSent{a.err}
	}
	return a.conn, nil
}

// notSent is the error of a connection that was not made: no request was sent.
type notSent struct{ err error }

func (e *notSent) Error() string { return e.err.Error() }
func (e *notSent) Unwrap() error { return e.err }

// serve reads the host's frames and puts them on the wires.
func (l *lan) serve(from *host) {
	buffer := make([]byte, largestFrame)
	for {
		n, err := from.tap.Read(buffer)
		if err != nil {
			return // closed
		}
		if n < 14 || [2]byte(buffer[12:14]) == ipv6 {
			continue
		}
		l.forward(from, slices.Clone(buffer[:n]))
	}
}

func (l *lan) forward(from *host, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.macs[[6]byte(data[6:12])] = from
	known := l.macs[[6]byte(data[:6])]
	for _, to := range l.hosts {
		if to == from || known != nil && known != to {
			continue
		}
		var e effect
		for r := range l.rules {
			one := r.effect(from, to)
			e.lost, e.delay = e.lost || one.lost, e.delay+one.delay
		}
		if e.lost {
			continue
		}
		select {
		case l.wires[[2]*host{from, to}] <- frame{time.Now().Add(e.delay), data}:
		default:
		}
	}
}

// carry delivers the frames of one wire in their order.
func carry(ctx context.Context, wire <-chan frame, to *host) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-wire:
			if wait := time.Until(f.due); wait > 0 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
			}
			_, _ = to.tap.Write(f.data)
		}
	}
}

// impose adds a rule until the returned function is called.
func (l *lan) impose(effect func(from, to *host) effect) (lift func()) {
	r := &rule{effect}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules[r] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.rules, r)
	}
}

// lossy returns an effect that loses a share of frames. The choice does not depend on the seed,
// because the number of frames does not.
func lossy(share float64, delay time.Duration) effect {
	return effect{lost: rand.Float64() < share, delay: delay}
}

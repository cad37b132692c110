package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// word is what a node says about one address.
type word struct {
	addr   netip.Addr
	holds  bool
	leaves bool // the node no longer stands for it
}

const (
	magic    = "knlb\x01" // with the version
	maxBeat  = 1400       // bytes; fits any network
	maxName  = 253
	flag6    = 1
	flagHold = 2
	flagGone = 4
)

// encode writes words into as many beats as they need.
func encode(name string, words []word) [][]byte {
	head := append([]byte(magic), byte(len(name)))
	head = append(head, name...)
	var out [][]byte
	beat := head[:len(head):len(head)]
	for _, w := range words {
		if len(beat)+17 > maxBeat {
			out = append(out, beat)
			beat = head[:len(head):len(head)]
		}
		flags := byte(0)
		if w.addr.Is6() {
			flags |= flag6
		}
		if w.holds {
			flags |= flagHold
		}
		if w.leaves {
			flags |= flagGone
		}
		beat = append(append(beat, flags), w.addr.AsSlice()...)
	}
	if len(beat) > len(head) {
		out = append(out, beat)
	}
	return out
}

// decode reads a beat.
func decode(data []byte) (name string, words []word, err error) {
	rest, ok := strings.CutPrefix(string(data), magic)
	if !ok || len(data) > maxBeat || len(rest) < 1 || len(rest) < 1+int(rest[0]) || rest[0] == 0 || int(rest[0]) > maxName {
		return "", nil, errors.New("not a beat")
	}
	name, rest = rest[1:1+rest[0]], rest[1+rest[0]:]
	for len(rest) > 0 {
		flags, size := rest[0], 4
		if flags&flag6 != 0 {
			size = 16
		}
		if len(rest) < 1+size || flags > flag6|flagHold|flagGone {
			return "", nil, errors.New("a beat ends within an address")
		}
		addr, _ := netip.AddrFromSlice([]byte(rest[1 : 1+size]))
		words = append(words, word{addr: addr, holds: flags&flagHold != 0, leaves: flags&flagGone != 0})
		rest = rest[1+size:]
	}
	return name, words, nil
}

// heard is a beat and its sender.
type heard struct {
	from  netip.Addr
	name  string
	words []word
}

// lasting is the time to live of beats. A router lowers it: beats of other networks, and those that
// a pod sends through its node, do not arrive with it (RFC 5082).
const lasting = 255

// beats is a socket for beats. receive and send may be used at the same time.
type beats struct {
	conn net.PacketConn
	read func([]byte) (n, ttl int, from net.Addr, err error)
	port int
}

func openBeats(ctx context.Context, own netip.Addr, port int) (*beats, error) {
	network := "udp4"
	if own.Is6() {
		network = "udp6"
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, network, netip.AddrPortFrom(own, uint16(port)).String())
	if err != nil {
		return nil, fmt.Errorf("listen for beats: %w", err)
	}
	b := &beats{conn: conn, port: port}
	if own.Is4() {
		p := ipv4.NewPacketConn(conn)
		err = errors.Join(p.SetTTL(lasting), p.SetControlMessage(ipv4.FlagTTL, true))
		b.read = func(buf []byte) (int, int, net.Addr, error) {
			n, control, from, err := p.ReadFrom(buf)
			if control == nil {
				return n, 0, from, err
			}
			return n, control.TTL, from, err
		}
	} else {
		p := ipv6.NewPacketConn(conn)
		err = errors.Join(p.SetHopLimit(lasting), p.SetControlMessage(ipv6.FlagHopLimit, true))
		b.read = func(buf []byte) (int, int, net.Addr, error) {
			n, control, from, err := p.ReadFrom(buf)
			if control == nil {
				return n, 0, from, err
			}
			return n, control.HopLimit, from, err
		}
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("prepare the socket for beats: %w", err)
	}
	return b, nil
}

// receive passes beats on until ctx ends or the socket is closed.
func (b *beats) receive(ctx context.Context, out chan<- heard) {
	buf := make([]byte, maxBeat+1)
	for {
		n, ttl, from, err := b.read(buf)
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		udp, ok := from.(*net.UDPAddr)
		if err != nil || ttl != lasting || !ok {
			continue
		}
		name, words, err := decode(buf[:n])
		if err != nil {
			continue
		}
		select {
		case out <- heard{udp.AddrPort().Addr().Unmap(), name, words}:
		case <-ctx.Done():
			return
		}
	}
}

// send is best effort: the next beat follows soon.
func (b *beats) send(to netip.Addr, datagrams [][]byte) {
	for _, d := range datagrams {
		_, _ = b.conn.WriteTo(d, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, uint16(b.port))))
	}
}

func (b *beats) close() { b.conn.Close() }

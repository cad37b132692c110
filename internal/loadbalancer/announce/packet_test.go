package announce

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"
)

var (
	mac1, mac2 = net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	asker4     = netip.MustParseAddr("192.0.2.9")
	pool4      = netip.MustParseAddr("192.0.2.1")
	asker6     = netip.MustParseAddr("2001:db8::9")
	pool6      = netip.MustParseAddr("2001:db8::1")
)

func inPool(a netip.Addr) bool { return a == pool4 || a == pool6 }

func TestARPRequestsForHeldAddressesAreAnswered(t *testing.T) {
	to, answer := answerTo(arpPacket(arpRequest, mac2, asker4, make(net.HardwareAddr, 6), pool4), true, mac1, mac2, inPool)
	if !bytes.Equal(to, mac2) || !bytes.Equal(answer, arpPacket(arpReply, mac1, pool4, mac2, asker4)) {
		t.Errorf("the answer to %s is % x", to, answer)
	}
	for what, packet := range map[string][]byte{
		"another address": arpPacket(arpRequest, mac2, pool4, make(net.HardwareAddr, 6), asker4),
		"a reply":         arpPacket(arpReply, mac2, asker4, mac1, pool4),
		"a short packet":  arpPacket(arpRequest, mac2, asker4, mac1, pool4)[:27],
	} {
		if _, answer := answerTo(packet, true, mac1, mac2, inPool); answer != nil {
			t.Errorf("%s is answered: % x", what, answer)
		}
	}
}

func solicit(from, target netip.Addr) []byte {
	p := slices.Concat([]byte{0x60, 0, 0, 0, 0, 24, 58, 255}, from.AsSlice(), make([]byte, 16))
	return slices.Concat(p, []byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice())
}

func TestNeighbourSolicitationsForHeldAddressesAreAnswered(t *testing.T) {
	to, answer := answerTo(solicit(asker6, pool6), false, mac1, mac2, inPool)
	if !bytes.Equal(to, mac2) || !bytes.Equal(answer, advertisement(pool6, asker6, mac1, true)) {
		t.Errorf("the answer to %s is % x", to, answer)
	}
	// The checksum over a packet with its checksum is zero.
	body := answer[ipv6Header:]
	if sum := checksum(slices.Concat(answer[8:40], []byte{0, 0, 0, byte(len(body)), 0, 0, 0, 58}, body)); sum != 0 {
		t.Errorf("the checksum is wrong by %x", sum)
	}
	if to, answer := answerTo(solicit(netip.IPv6Unspecified(), pool6), false, mac1, mac2, inPool); !bytes.Equal(to, allNodesMAC) || answer == nil {
		t.Errorf("the answer to duplicate address detection is for %s", to)
	}
	far := solicit(asker6, pool6)
	far[7] = 64
	for what, packet := range map[string][]byte{"another address": solicit(asker6, asker6), "a packet from afar": far} {
		if _, answer := answerTo(packet, false, mac1, mac2, inPool); answer != nil {
			t.Errorf("%s is answered: % x", what, answer)
		}
	}
}

func FuzzPackets(f *testing.F) {
	f.Add(arpPacket(arpRequest, mac2, asker4, mac1, pool4))
	f.Add(solicit(asker6, pool6))
	f.Fuzz(func(t *testing.T, packet []byte) {
		for _, v4 := range []bool{true, false} {
			if to, answer := answerTo(packet, v4, mac1, mac2, inPool); answer != nil && len(to) != 6 {
				t.Fatalf("an answer to %v", to)
			}
		}
	})
}

func TestBeatsHoldAsManyWordsAsFit(t *testing.T) {
	var words []word
	for i := range 200 {
		words = append(words, word{addr: netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}), holds: i%2 == 0}, word{addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), leaves: i%3 == 0})
	}
	var got []word
	for _, beat := range encode("node-1", words) {
		name, some, err := decode(beat)
		if err != nil || name != "node-1" {
			t.Fatalf("a beat of %q: %v", name, err)
		}
		got = append(got, some...)
	}
	if !slices.Equal(got, words) {
		t.Errorf("%d words arrive as %d other ones", len(words), len(got))
	}
}

func FuzzBeats(f *testing.F) {
	f.Add(encode("a", []word{{addr: pool4, holds: true}, {addr: pool6, leaves: true}})[0])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		name, words, err := decode(data)
		if err != nil || len(words) == 0 {
			return
		}
		var again []word
		for _, beat := range encode(name, words) {
			_, some, err := decode(beat)
			if err != nil {
				t.Fatalf("% x is written as % x: %v", data, beat, err)
			}
			again = append(again, some...)
		}
		if !slices.Equal(again, words) {
			t.Fatalf("% x is read as %v, and again as %v", data, words, again)
		}
	})
}

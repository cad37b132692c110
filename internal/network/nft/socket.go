package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// socketBuffer suffices for transactions of ten thousand Services. Root may exceed
// net.core.[rw]mem_max.
const socketBuffer = 16 << 20

func bigBuffers(c *netlink.Conn) error {
	if err := c.SetReadBuffer(socketBuffer); err != nil {
		return err
	}
	return c.SetWriteBuffer(socketBuffer)
}

// Generations reads the kernel's counter of nftables changes in this network namespace. It keeps
// its socket open: closing one waits until the kernel has freed everything that was ever deleted
// (10 ms).
type Generations struct{ conn *netlink.Conn }

// Close closes the socket.
func (g *Generations) Close() {
	if g.conn != nil {
		_ = g.conn.Close()
		g.conn = nil
	}
}

// Now returns the current count.
func (g *Generations) Now() (uint32, error) {
	if g.conn == nil {
		c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return 0, fmt.Errorf("nftables generation: %w", err)
		}
		g.conn = c
	}
	replies, err := g.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		g.Close()
		return 0, fmt.Errorf("nftables generation: %w", err)
	}
	for _, m := range replies {
		if len(m.Data) < 4 {
			continue
		}
		d, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return 0, fmt.Errorf("nftables generation: %w", err)
		}
		d.ByteOrder = binary.BigEndian
		for d.Next() {
			if d.Type() == unix.NFTA_GEN_ID {
				return d.Uint32(), nil
			}
		}
	}
	return 0, errors.New("nftables generation: the kernel's answer has none")
}

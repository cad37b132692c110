package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// socketBuffer is for transactions of ten thousand Services; root may exceed net.core.[rw]mem_max.
const socketBuffer = 16 << 20

func bigBuffers(c *netlink.Conn) error {
	if err := c.SetReadBuffer(socketBuffer); err != nil {
		return err
	}
	return c.SetWriteBuffer(socketBuffer)
}

// Generation is the kernel's count of changes to nftables rules, by anybody in this network namespace.
func Generation() (uint32, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, fmt.Errorf("nftables generation: %w", err)
	}
	defer c.Close()
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
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

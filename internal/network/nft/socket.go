package nft

import "github.com/mdlayher/netlink"

// socketBuffer is for transactions of ten thousand Services; root may exceed net.core.[rw]mem_max.
const socketBuffer = 16 << 20

func bigBuffers(c *netlink.Conn) error {
	if err := c.SetReadBuffer(socketBuffer); err != nil {
		return err
	}
	return c.SetWriteBuffer(socketBuffer)
}

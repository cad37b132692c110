package h2

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

const (
	frameHeader = 9
	// largestFrame is what may be sent to everybody.
	largestFrame  = 16 << 10
	initialWindow = 65535
)

// header is a frame's: RFC 9113, 4.1.
type header struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

func parseHeader(b []byte) header {
	return header{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]), kind: http2.FrameType(b[3]), flags: http2.Flags(b[4]),
		stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}

func appendHeader(b []byte, h header) []byte {
	b = append(b, byte(h.length>>16), byte(h.length>>8), byte(h.length), byte(h.kind), byte(h.flags))
	return binary.BigEndian.AppendUint32(b, h.stream)
}

// incoming is how far the client's frames have been read.
type incoming struct {
	pass  int    // bytes that the library gets as they are
	frame []byte // what has been read of the one that is looked at
	feed  []byte // what the library gets next
	// block is the stream whose header is being read; asked: that is all of its request.
	block       uint32
	asked, last bool // last: the header ends with this frame
}

// Read gives the library what the client has sent, but for what is about streams that it does not have any more.
func (c *Conn) Read(p []byte) (int, error) {
	in := &c.in
	for len(p) > 0 {
		switch {
		case len(in.feed) > 0:
			n := copy(p, in.feed)
			in.feed = in.feed[n:]
			return n, nil
		case in.pass > 0:
			n, err := c.receive(p[:min(len(p), in.pass)])
			if in.pass -= n; in.pass == 0 {
				c.readBlock()
			}
			return n, err
		}
		if err := c.readFrame(); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// readBlock notes the stream whose header the library has now.
func (c *Conn) readBlock() {
	if in := &c.in; in.block != 0 && in.last {
		c.opened(in.block, in.asked)
		in.block = 0
	}
}

// readFrame reads a frame's header, and the rest of those that are looked at, until the library is to be given something.
func (c *Conn) readFrame() error {
	in := &c.in
	want := frameHeader
	for {
		for in.frame = slices.Grow(in.frame, want-len(in.frame)); len(in.frame) < want; {
			n, err := c.receive(in.frame[len(in.frame):want])
			if err != nil || len(in.feed) > 0 {
				return err
			}
			in.frame = in.frame[:len(in.frame)+n]
		}
		h := parseHeader(in.frame)
		switch {
		case !examined(h):
			in.pass = h.length
			switch h.kind {
			case http2.FrameHeaders:
				in.block, in.asked, in.last = h.stream, h.flags.Has(http2.FlagHeadersEndStream), h.flags.Has(http2.FlagHeadersEndHeaders)
			case http2.FrameContinuation:
				in.last = h.flags.Has(http2.FlagContinuationEndHeaders)
			}
			if h.length == 0 {
				c.readBlock()
			}
		case want < frameHeader+h.length:
			want += h.length
			continue
		}
		if c.received(h, in.frame[frameHeader:]) {
			in.feed = in.frame
		}
		in.frame = in.frame[:0]
		return nil
	}
}

// examined tells whether a frame is looked at as a whole. What is longer than it may be is for the library to refuse.
func examined(h header) bool {
	switch h.kind {
	case http2.FrameWindowUpdate, http2.FrameRSTStream:
		return h.length == 4
	case http2.FrameSettings, http2.FrameGoAway:
		return h.length <= largestFrame
	}
	return false
}

// received takes note of what a frame from the client says, and tells whether the library is to have it.
func (c *Conn) received(h header, payload []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[h.stream]
	switch h.kind {
	case http2.FrameSettings:
		if h.flags&http2.FlagSettingsAck == 0 {
			c.settings(payload)
		}
	case http2.FrameGoAway:
		if c.taken > 0 {
			return false // the library would close a connection that it takes for unused
		}
		c.away = true
	case http2.FrameRSTStream:
		if st != nil && examined(h) {
			c.gone(st)
		}
	case http2.FrameWindowUpdate:
		if !examined(h) {
			return true
		}
		more := int64(binary.BigEndian.Uint32(payload) &^ (1 << 31))
		if h.stream == 0 && more > 0 {
			more = c.widened(more)
			binary.BigEndian.PutUint32(payload, uint32(more))
			return more > 0
		}
		if st != nil {
			st.widen(more)
			return st.state == theirs || st.state == taken
		}
	}
	return true
}

// settings: the window that streams begin with is changed for those that there are as well (RFC 9113, 6.9.2).
func (c *Conn) settings(payload []byte) {
	size := c.initial
	for ; len(payload) >= 6; payload = payload[6:] {
		if http2.SettingID(binary.BigEndian.Uint16(payload)) == http2.SettingInitialWindowSize {
			size = int64(binary.BigEndian.Uint32(payload[2:]))
		}
	}
	if size == c.initial {
		return
	}
	for _, st := range c.streams {
		st.widen(size - c.initial)
	}
	c.initial = size
}

// receive reads, though the time for idle connections may come meanwhile: then it gives nothing.
func (c *Conn) receive(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.giveUp() {
		return 0, nil
	}
	return n, err
}

// giveUp lets the library end the connection the way it would itself: as if the client had said that it will ask for nothing more. Of a client that has sent half a frame, or half a
// request, the library is told that its time is over, by the error.
func (c *Conn) giveUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leaving {
		return false
	}
	c.leaving = false
	if len(c.streams) == 0 && (c.in.pass > 0 || len(c.in.frame) > 0 || c.in.block != 0) {
		return false
	}
	_ = c.SetReadDeadline(time.Time{})
	if len(c.streams) > 0 || c.closed {
		return true
	}
	c.away = true
	c.in.feed = append(appendHeader(nil, header{length: 8, kind: http2.FrameGoAway}), make([]byte, 8)...) // no stream, no error
	return true
}

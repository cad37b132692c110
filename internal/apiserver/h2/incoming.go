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
	// largestFrame is the payload that every receiver accepts (RFC 9113, 4.2).
	largestFrame  = 16 << 10
	initialWindow = 65535
)

// header is a frame's header (RFC 9113, 4.1).
type header struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

func parseHeader(b []byte) header {
	return header{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   http2.FrameType(b[3]), flags: http2.Flags(b[4]),
		stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}

func appendHeader(b []byte, h header) []byte {
	b = append(b, byte(h.length>>16), byte(h.length>>8), byte(h.length), byte(h.kind), byte(h.flags))
	return binary.BigEndian.AppendUint32(b, h.stream)
}

// incoming is the state of reading the client's frames.
type incoming struct {
	passThrough int    // how many bytes the library gets unread
	frame       []byte // what has been read of the frame that is examined
	feed        []byte // what the library gets next
	// opening is the stream whose header block is being read; 0: none is.
	opening    uint32
	endStream  bool // the request ends with that header block
	endHeaders bool // the header block ends with this frame
}

// Read gives the library what the client has sent, without what concerns detached streams only.
func (c *Conn) Read(p []byte) (int, error) {
	in := &c.in
	for len(p) > 0 {
		switch {
		case len(in.feed) > 0:
			n := copy(p, in.feed)
			in.feed = in.feed[n:]
			return n, nil
		case in.passThrough > 0:
			n, err := c.receive(p[:min(len(p), in.passThrough)])
			if in.passThrough -= n; in.passThrough == 0 {
				c.finishHeaders()
			}
			return n, err
		}
		if err := c.readFrame(); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// finishHeaders tracks the stream whose header block the library has now.
func (c *Conn) finishHeaders() {
	if in := &c.in; in.opening != 0 && in.endHeaders {
		c.openStream(in.opening, in.endStream)
		in.opening = 0
	}
}

// readFrame reads the header of a frame, and the payload if the frame is examined. It returns when
// there is something for the library.
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
			in.passThrough = h.length
			switch h.kind {
			case http2.FrameHeaders:
				in.opening = h.stream
				in.endStream = h.flags.Has(http2.FlagHeadersEndStream)
				in.endHeaders = h.flags.Has(http2.FlagHeadersEndHeaders)
			case http2.FrameContinuation:
				in.endHeaders = h.flags.Has(http2.FlagContinuationEndHeaders)
			}
			if h.length == 0 {
				c.finishHeaders()
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

// examined says whether a frame's payload is read here. The library refuses payloads that are too
// long.
func examined(h header) bool {
	switch h.kind {
	case http2.FrameWindowUpdate, http2.FrameRSTStream:
		return h.length == 4
	case http2.FrameSettings, http2.FrameGoAway:
		return h.length <= largestFrame
	}
	return false
}

// received notes what a frame from the client says, and returns whether the library gets the frame.
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
		if c.detached > 0 {
			return false // the library would take the connection for unused, and close it
		}
		c.goingAway = true
	case http2.FrameRSTStream:
		if st != nil && examined(h) {
			c.hangUp(st)
		}
	case http2.FrameWindowUpdate:
		if !examined(h) {
			return true
		}
		more := int64(binary.BigEndian.Uint32(payload) &^ (1 << 31))
		if h.stream == 0 && more > 0 {
			more = c.widen(more)
			binary.BigEndian.PutUint32(payload, uint32(more))
			return more > 0
		}
		if st != nil {
			st.widen(more)
			return st.state == inHandler || st.state == detaching
		}
	}
	return true
}

// settings applies a new initial window, which changes the windows of open streams as well
// (RFC 9113, 6.9.2).
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

// receive reads from TLS. If the idle timeout ends meanwhile, it returns 0 bytes and no error.
func (c *Conn) receive(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.endIdle() {
		return 0, nil
	}
	return n, err
}

// endIdle lets the library end an idle connection in its own way, as if the client had announced
// that it will send no more requests. If the client has sent half a frame or half a request,
// endIdle returns false, and the library gets the timeout as an error.
func (c *Conn) endIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.idleExpired {
		return false
	}
	c.idleExpired = false
	if len(c.streams) == 0 && (c.in.passThrough > 0 || len(c.in.frame) > 0 || c.in.opening != 0) {
		return false
	}
	_ = c.SetReadDeadline(time.Time{})
	if len(c.streams) > 0 || c.closed {
		return true
	}
	c.goingAway = true
	c.in.feed = appendHeader(nil, header{length: 8, kind: http2.FrameGoAway})
	c.in.feed = append(c.in.feed, make([]byte, 8)...) // no stream, no error
	return true
}

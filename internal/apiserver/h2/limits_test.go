package h2

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// much is more than the windows of the clients below.
const much = 3 << 20

// Clients grant more when half of the connection's window is used up, or all of it.
func TestAllStreamsAdvanceHoweverTheClientGrantsWindows(t *testing.T) {
	for name, usedUp := range map[string]float64{"half": 0.5, "all": 1} {
		for asked, others := range map[string]int{"detached streams alone": 0, "beside responses of handlers": 3} {
			t.Run(fmt.Sprintf("%s of it, %s", name, asked), func(t *testing.T) {
				const window = 65535 + 1<<20
				c, writers := greeted(t, 1<<30, window-65535)
				want := map[uint32]byte{}
				for i := range 2 {
					id := uint32(2*i + 1)
					c.ask(id, "/detach")
					wr := <-writers
					if wr == nil {
						t.Fatal("not detached")
					}
					want[id] = byte('a' + i)
					wr.write(bytes.Repeat([]byte{want[id]}, much))
					wr.write(nil)
				}
				for i := range others {
					id := uint32(2*i + 5)
					c.ask(id, "/much")
					want[id] = 'm'
				}
				got, left := map[uint32]int{}, window
				for len(want) > 0 {
					f, err := c.ReadFrame()
					c.must(err)
					data, ok := f.(*http2.DataFrame)
					if !ok {
						continue
					}
					id := data.StreamID
					if left -= len(data.Data()); left < 0 {
						t.Fatalf("%d bytes too many", -left)
					}
					if len(bytes.Trim(data.Data(), string(want[id]))) > 0 {
						t.Fatalf("stream %d got bytes of another", id)
					}
					if got[id] += len(data.Data()); data.StreamEnded() {
						if got[id] != much {
							t.Errorf("stream %d got %d bytes", id, got[id])
						}
						delete(want, id)
					}
					if used := window - left; float64(used) >= usedUp*window {
						c.must(c.WriteWindowUpdate(0, uint32(used)))
						left = window
					}
				}
			})
		}
	}
}

// reading returns a Conn that reads frames like the library, and its client.
func reading(t *testing.T) (c *Conn, client *http2.Framer, done chan struct{}) {
	t.Helper()
	mine, other := tlsPair(t)
	c = newConn(mine, nil, taskpool.NewPool(), 0, time.Minute)
	c.in.passThrough = 0 // the test sends no preface
	done = make(chan struct{})
	ping := frameHeader + 8
	go func() { // until a ping
		defer close(done)
		for last := []byte(nil); len(last) < ping || http2.FrameType(last[len(last)-ping+3]) != http2.FramePing; {
			b := make([]byte, 1000)
			n, err := c.Read(b)
			if err != nil {
				return
			}
			last = append(last, b[:n]...)
			last = last[max(0, len(last)-ping):]
		}
	}()
	return c, http2.NewFramer(other, other), done
}

func TestAConnectionTracksALimitedNumberOfStreams(t *testing.T) {
	for away, want := range map[bool]int{false: maxStreams, true: 0} {
		c, client, done := reading(t)
		if away {
			if err := client.WriteGoAway(0, http2.ErrCodeNo, nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 * maxStreams {
			if err := client.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: []byte{0x82}, EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.WritePing(false, [8]byte{}); err != nil {
			t.Fatal(err)
		}
		<-done
		if n := len(c.streams); n != want {
			t.Errorf("going away %t: %d streams are tracked, want %d", away, n, want)
		}
	}
}

func TestAConnectionWithoutAWholeRequestIsIdle(t *testing.T) {
	header := appendHeader(nil, header{length: 100, kind: http2.FrameHeaders, flags: http2.FlagHeadersEndHeaders, stream: 1})
	for name, begin := range map[string]func(c *raw) error{
		"nothing":        func(*raw) error { return nil },
		"half a frame":   func(c *raw) error { _, err := c.conn.Write(header[:3]); return err },
		"a frame header": func(c *raw) error { _, err := c.conn.Write(header); return err },
		"half a header block": func(c *raw) error {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndStream: true})
		},
	} {
		address, trust, _ := serving(t, 100*time.Millisecond)
		c := dial(t, address, trust)
		err := c.hello(1<<20, wide)
		if err == nil {
			err = begin(c)
		}
		if err != nil {
			continue // the idle timeout came first
		}
		for err == nil {
			_, err = c.ReadFrame()
		}
		if late, ok := err.(interface{ Timeout() bool }); ok && late.Timeout() {
			t.Errorf("%s: the connection stays", name)
		}
	}
}

func TestNoFrameComesIntoAHeaderBlock(t *testing.T) {
	mine, other := tlsPair(t)
	go func() { _, _ = io.Copy(io.Discard, other) }()
	c := newConn(mine, nil, taskpool.NewPool(), 0, time.Minute)
	for _, step := range []struct {
		kind  http2.FrameType
		flags http2.Flags
		may   bool
	}{
		{http2.FrameHeaders, 0, false},
		{http2.FrameContinuation, 0, false},
		{http2.FrameContinuation, http2.FlagContinuationEndHeaders, true},
		{http2.FrameHeaders, http2.FlagHeadersEndHeaders, true},
	} {
		if _, err := c.Write(appendHeader(nil, header{kind: step.kind, flags: step.flags, stream: 1})); err != nil {
			t.Fatal(err)
		}
		// The group waits for its turn, or has just got it.
		c.mu.Lock()
		may := !c.busy || c.groupsTurn
		c.mu.Unlock()
		if may != step.may {
			t.Errorf("after a %v frame with flags %v others may write: %t", step.kind, step.flags, may)
		}
	}
}

func TestNoResponseIsDetachedAfterTheClientsGoAway(t *testing.T) {
	c, writers := greeted(t, 1<<20, wide)
	c.ask(1, "/late")
	c.must(c.WriteGoAway(0, http2.ErrCodeNo, nil))
	c.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameGoAway })
	late <- struct{}{}
	if wr := <-writers; wr != nil {
		t.Error("it is detached")
	}
	c.until(func(f http2.Frame) bool {
		return f.Header().StreamID == 1 && f.Header().Flags.Has(http2.FlagDataEndStream)
	})
}

func TestNoResponseIsDetachedBeforeItsRequestHasEnded(t *testing.T) {
	c, writers := greeted(t, 1<<20, wide)
	c.request(1, "/detach", false)
	if wr := <-writers; wr != nil {
		t.Error("it is detached")
	}
}

func TestAResponseThatEndsBeforeDetachEndsWithItsHandler(t *testing.T) {
	c, _ := greeted(t, 1<<20, wide)
	c.ask(1, "/refused")
	c.until(func(f http2.Frame) bool {
		return f.Header().StreamID == 1 && f.Header().Flags.Has(http2.FlagDataEndStream)
	})
}

func TestGoAwayIsSentOnceAndRequestsGoOn(t *testing.T) {
	c, wr := detachOne(t, 1<<20)
	away := 0
	ended := func(id uint32) {
		t.Helper()
		c.until(func(f http2.Frame) bool {
			if said, ok := f.(*http2.GoAwayFrame); ok {
				if away++; said.LastStreamID != 1<<31-1 || said.ErrCode != http2.ErrCodeNo {
					t.Errorf("the frame is %v", said)
				}
			}
			return f.Header().StreamID == id && f.Header().Flags.Has(http2.FlagDataEndStream)
		})
	}
	c.ask(3, "/away")
	ended(3)
	if away != 1 {
		t.Fatalf("%d frames before the response", away)
	}
	c.ask(5, "/away")
	ended(5)
	c.ask(7, "/echo")
	ended(7)
	wr.write([]byte("still here"))
	wr.write(nil)
	ended(1)
	if away != 1 {
		t.Errorf("%d frames", away)
	}
}

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

// much is more than a client's window below.
const much = 3 << 20

// TestNobodyIsKeptWaitingByAnyClientsWindow: clients say that they take more when half of the connection's window is used up, or all of it.
func TestNobodyIsKeptWaitingByAnyClientsWindow(t *testing.T) {
	for name, usedUp := range map[string]float64{"half": 0.5, "all": 1} {
		for asked, others := range map[string]int{"only what was taken": 0, "beside handlers' answers": 3} {
			t.Run(fmt.Sprintf("%s of it, %s", name, asked), func(t *testing.T) {
				const window = 65535 + 1<<20
				c, takers := greeted(t, 1<<30, window-65535)
				want := map[uint32]byte{}
				for i := range 2 {
					id := uint32(2*i + 1)
					c.ask(id, "/take")
					tk := <-takers
					if tk == nil {
						t.Fatal("not taken")
					}
					want[id] = byte('a' + i)
					tk.write(bytes.Repeat([]byte{want[id]}, much))
					tk.write(nil)
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
						t.Fatalf("stream %d got another's bytes", id)
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

// reading is a Conn that reads frames as the library would, and its client.
func reading(t *testing.T) (c *Conn, client *http2.Framer, done chan struct{}) {
	t.Helper()
	mine, other := tlsPair(t)
	c = newConn(mine, nil, taskpool.NewPool(), 0, time.Minute)
	c.in.pass = 0 // no preface
	done = make(chan struct{})
	ping := frameHeader + 8
	go func() {
		defer close(done)
		for last := []byte(nil); len(last) < ping || http2.FrameType(last[len(last)-ping+3]) != http2.FramePing; { // ends with a ping
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

func TestAConnectionKnowsSoManyStreamsAtMost(t *testing.T) {
	for away, want := range map[bool]int{false: mostStreams, true: 0} {
		c, client, done := reading(t)
		if away {
			if err := client.WriteGoAway(0, http2.ErrCodeNo, nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 * mostStreams {
			if err := client.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: []byte{0x82}, EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.WritePing(false, [8]byte{}); err != nil {
			t.Fatal(err)
		}
		<-done
		if n := len(c.streams); n != want {
			t.Errorf("away %t: %d streams are known, want %d", away, n, want)
		}
	}
}

func TestAConnectionThatAsksForNothingIsIdle(t *testing.T) {
	header := appendHeader(nil, header{length: 100, kind: http2.FrameHeaders, flags: http2.FlagHeadersEndHeaders, stream: 1})
	for name, begin := range map[string]func(c *raw) error{
		"nothing":             func(*raw) error { return nil },
		"half a frame":        func(c *raw) error { _, err := c.conn.Write(header[:3]); return err },
		"a header of headers": func(c *raw) error { _, err := c.conn.Write(header); return err },
		"half a block of headers": func(c *raw) error {
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
			continue // the server was quicker
		}
		for err == nil {
			_, err = c.ReadFrame()
		}
		if late, ok := err.(interface{ Timeout() bool }); ok && late.Timeout() {
			t.Errorf("%s: the connection stays", name)
		}
	}
}

func TestNothingComesIntoABlockOfHeaders(t *testing.T) {
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
		// The group may have had the turn already, by which it was promised one.
		c.mu.Lock()
		may := !c.busy || c.handed
		c.mu.Unlock()
		if may != step.may {
			t.Errorf("after a %v frame with flags %v others may write: %t", step.kind, step.flags, may)
		}
	}
}

func TestAnAnswerIsNotTakenWhenTheClientHasSaidGoodBye(t *testing.T) {
	c, takers := greeted(t, 1<<20, wide)
	c.ask(1, "/late")
	c.must(c.WriteGoAway(0, http2.ErrCodeNo, nil))
	c.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameGoAway })
	late <- struct{}{}
	if tk := <-takers; tk != nil {
		t.Error("it is taken")
	}
	c.until(func(f http2.Frame) bool {
		return f.Header().StreamID == 1 && f.Header().Flags.Has(http2.FlagDataEndStream)
	})
}

func TestAnAnswerIsNotTakenBeforeTheRequestHasEnded(t *testing.T) {
	c, takers := greeted(t, 1<<20, wide)
	c.askFor(1, "/take", false)
	if tk := <-takers; tk != nil {
		t.Error("it is taken")
	}
}

func TestAnAnswerThatNobodyWantsEndsWithItsHandler(t *testing.T) {
	c, _ := greeted(t, 1<<20, wide)
	c.ask(1, "/refused")
	c.until(func(f http2.Frame) bool {
		return f.Header().StreamID == 1 && f.Header().Flags.Has(http2.FlagDataEndStream)
	})
}

func TestAClientThatIsToGoIsToldOnceAndServedUntilItDoes(t *testing.T) {
	c, tk := taking(t, 1<<20)
	away := 0
	ended := func(id uint32) {
		t.Helper()
		c.until(func(f http2.Frame) bool {
			if said, ok := f.(*http2.GoAwayFrame); ok {
				if away++; said.LastStreamID != 1<<31-1 || said.ErrCode != http2.ErrCodeNo {
					t.Errorf("it is told %v", said)
				}
			}
			return f.Header().StreamID == id && f.Header().Flags.Has(http2.FlagDataEndStream)
		})
	}
	c.ask(3, "/away")
	ended(3)
	if away != 1 {
		t.Fatalf("told %d times before the answer", away)
	}
	c.ask(5, "/away")
	ended(5)
	c.ask(7, "/echo")
	ended(7)
	tk.write([]byte("still here"))
	tk.write(nil)
	ended(1)
	if away != 1 {
		t.Errorf("told %d times", away)
	}
}

package h2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// requestFor returns the header block of a request for the path.
func requestFor(path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: path}} {
		_ = e.WriteField(f)
	}
	return b.Bytes()
}

// sent returns the frames that f writes.
func sent(f func(fr *http2.Framer)) []byte {
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	fr.AllowIllegalWrites = true
	f(fr)
	return b.Bytes()
}

// FuzzFrames sends any bytes to a server that detaches responses. The server must end the
// connection and go on to serve others.
func FuzzFrames(f *testing.F) {
	detach, echo := requestFor("/detach"), requestFor("/echo")
	for _, frames := range []func(fr *http2.Framer){
		func(fr *http2.Framer) {
			_ = fr.WriteSettings()
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: detach, EndStream: true, EndHeaders: true})
			_ = fr.WriteWindowUpdate(1, 1)
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
		},
		func(fr *http2.Framer) {
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: detach[:5], EndStream: true})
			_ = fr.WriteContinuation(1, true, detach[5:])
			_ = fr.WriteWindowUpdate(0, 1<<31-1)
			_ = fr.WriteWindowUpdate(1, 1<<31-1)
			_ = fr.WriteGoAway(0, http2.ErrCodeNo, []byte("x"))
		},
		func(fr *http2.Framer) {
			_ = fr.WriteSettings()
			_ = fr.WriteSettingsAck()
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: echo, EndHeaders: true})
			_ = fr.WriteData(3, false, []byte("text"))
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{}, EndHeaders: true, EndStream: true})
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: detach, EndHeaders: true, EndStream: true})
			_ = fr.WritePing(false, [8]byte{1})
			_ = fr.WriteRawFrame(http2.FrameWindowUpdate, 0, 5, []byte{0, 0, 0})
			_ = fr.WriteRawFrame(http2.FrameType(77), 255, 9, []byte("unknown"))
			_ = fr.WriteRawFrame(http2.FrameGoAway, 0, 0, []byte{})
		},
	} {
		f.Add(sent(frames))
	}
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 255, 255, 255, 1, 4})
	address, trust, writers := serving(f, time.Minute)
	ended := make(chan struct{})
	f.Cleanup(func() { close(ended) })
	go func() {
		for {
			select {
			case wr := <-writers:
				if wr != nil {
					wr.write(make([]byte, 70_000)) // more than the window
					wr.write(nil)
				}
			case <-ended:
				return
			}
		}
	}()
	others := clientOf(f, trust)
	f.Fuzz(func(t *testing.T, frames []byte) {
		conn, err := tls.Dial("tcp", address, trust)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = conn.NetConn().(*net.TCPConn).SetLinger(0) // or the ports run out
			_ = conn.Close()
		}()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = conn.Write(append([]byte(http2.ClientPreface), frames...)) // the server may hang up
		_ = conn.CloseWrite()
		if err := lastFrame(conn); isTimeout(err) {
			t.Errorf("the connection does not end: %v", err)
		}
		body, err := get(t.Context(), others, "https://"+address+"/echo")
		if err != nil {
			t.Fatalf("other clients are not served any more: %v", err)
		}
		_, _ = io.Copy(io.Discard, body)
		_ = body.Close()
	})
}

// lastFrame reads until the server's GOAWAY. A second later the server hangs up.
func lastFrame(conn net.Conn) error {
	for fr := http2.NewFramer(io.Discard, conn); ; {
		frame, err := fr.ReadFrame()
		if err != nil {
			return err
		}
		if _, ok := frame.(*http2.GoAwayFrame); ok {
			return nil
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

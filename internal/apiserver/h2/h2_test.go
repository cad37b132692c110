package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/knarr-project/knarr/internal/apiserver/socket"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// writer writes a detached response.
type writer struct {
	stream *Stream
	pool   *taskpool.Pool
	task   taskpool.Task
	gone   chan struct{}

	mu   sync.Mutex // guards what follows
	todo []byte
	end  bool
	lost bool
}

// detach writes a header and detaches the response. It returns nil if it cannot be detached.
func detach(pool *taskpool.Pool, w http.ResponseWriter, r *http.Request) *writer {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	wr := &writer{stream: StreamOf(r.Context(), w), pool: pool, gone: make(chan struct{})}
	if wr.stream == nil {
		return nil
	}
	wr.task = wr.stream.Task(wr.turn)
	if !wr.stream.Detach(&wr.task, wr.hungUp) {
		return nil
	}
	return wr
}

func (wr *writer) hungUp() {
	go func() { // the caller holds a lock that turn needs
		wr.mu.Lock()
		wr.lost = true
		wr.mu.Unlock()
		close(wr.gone)
		wr.pool.Wake(&wr.task)
	}()
}

// write gives the writer more to write. No bytes end the response.
func (wr *writer) write(b []byte) {
	wr.mu.Lock()
	wr.todo, wr.end = append(wr.todo, b...), len(b) == 0
	wr.mu.Unlock()
	wr.pool.Wake(&wr.task)
}

func (wr *writer) turn() time.Duration {
	wr.mu.Lock()
	defer wr.mu.Unlock()
	for !wr.lost {
		room := wr.stream.Room()
		switch {
		case room == 0:
			return taskpool.Idle
		case len(wr.todo) == 0 && !wr.end:
			return taskpool.Idle
		case len(wr.todo) == 0:
			wr.stream.End()
			return taskpool.Ended
		}
		n := min(len(wr.todo), 1000) // even if there is less room
		_, _ = wr.stream.Write(wr.todo[:n])
		wr.todo = wr.todo[n:]
	}
	wr.stream.End()
	return taskpool.Ended
}

// late is what the handler of /late waits for.
var late = make(chan struct{})

// serving starts a server of HTTP/2. The responses of /detach and /late are detached and sent to
// the channel; nil there means that a response could not be detached. /much is a large response,
// and /echo sends its body back.
func serving(t testing.TB, idle time.Duration) (address string, trust *tls.Config, writers chan *writer) {
	t.Helper()
	pool := taskpool.NewPool()
	writers = make(chan *writer, 100)
	mux := http.NewServeMux()
	mux.HandleFunc("/detach", func(w http.ResponseWriter, r *http.Request) { writers <- detach(pool, w, r) })
	mux.HandleFunc("/late", func(w http.ResponseWriter, r *http.Request) {
		<-late
		writers <- detach(pool, w, r)
	})
	mux.HandleFunc("/much", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte{'m'}, much)) })
	mux.HandleFunc("/refused", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		stream := StreamOf(r.Context(), w)
		stream.End()
		if task := stream.Task(nil); stream.Detach(&task, nil) {
			t.Error("a response is detached after its end")
		}
	})
	mux.HandleFunc("/away", func(_ http.ResponseWriter, r *http.Request) { GoAway(r.Context()) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	pair := httptest.NewTLSServer(nil)
	pair.Close() // the tests need only its certificate
	server := &http.Server{Handler: mux, ConnContext: socket.Context, IdleTimeout: idle, TLSConfig: &tls.Config{Certificates: pair.TLS.Certificates}}
	if err := Configure(server, pool, time.Minute); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(socket.Listen(listener), "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}, writers
}

func clientOf(t testing.TB, trust *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: trust}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(ctx context.Context, client *http.Client, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.ProtoMajor != 2 {
		return nil, errors.Join(fmt.Errorf("answered by %s", resp.Proto), resp.Body.Close())
	}
	return resp.Body, nil
}

func TestAResponseIsDetached(t *testing.T) {
	address, trust, writers := serving(t, time.Minute)
	client := clientOf(t, trust)
	body, err := get(t.Context(), client, "https://"+address+"/detach")
	if err != nil {
		t.Fatal(err)
	}
	wr := <-writers
	if wr == nil {
		t.Fatal("it cannot be detached: does CheckLayout fail?")
	}
	wr.write([]byte("one "))
	wr.write([]byte("two"))
	wr.write(nil)
	if got, err := io.ReadAll(body); err != nil || string(got) != "one two" {
		t.Errorf("%q %v", got, err)
	}
}

// Some of the detached responses are given up, and handlers write responses of all sizes between
// them.
func TestEachStreamOfAConnectionGetsItsOwnBytes(t *testing.T) {
	address, trust, writers := serving(t, time.Minute)
	client := clientOf(t, trust)
	const each = 300_000
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel) // after the bodies are read
		body, err := get(ctx, client, "https://"+address+"/detach")
		if err != nil {
			t.Fatal(err)
		}
		wr := <-writers
		if wr == nil {
			t.Fatal("not detached")
		}
		if i%5 == 4 { // this client hangs up
			all.Go(func() {
				wr.write(bytes.Repeat([]byte{byte(i)}, each))
				_, _ = io.ReadFull(body, make([]byte, 1000))
				cancel()
				<-wr.gone
			})
			continue
		}
		all.Go(func() {
			for range 10 {
				wr.write(bytes.Repeat([]byte{byte(i)}, each/10))
			}
			wr.write(nil)
		})
		all.Go(func() {
			got, err := io.ReadAll(body)
			if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, each)) {
				t.Errorf("stream %d got %d bytes, not all of them its own: %v", i, len(got), err)
			}
		})
	}
	for i := range 10 {
		sent := bytes.Repeat([]byte{byte(100 + i)}, 1+i*i*10_000)
		all.Go(func() {
			resp, err := client.Post("https://"+address+"/echo", "", bytes.NewReader(sent))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("echo %d is %d bytes of %d: %v", i, len(got), len(sent), err)
			}
		})
	}
}

func TestABrokenConnectionHangsUpItsStreams(t *testing.T) {
	c, wr := detachOne(t, 1<<20)
	_ = c.conn.Close()
	<-wr.gone
}

func TestAConnectionIsIdleWhenNoStreamIsDetached(t *testing.T) {
	c, wr := detachOne(t, 1<<20)
	conn := wr.stream.conn
	conn.mu.Lock()
	conn.idle = time.Millisecond // not before: on a slow machine the test takes longer to get here
	conn.mu.Unlock()
	for id := uint32(3); id < 13; id += 2 { // other streams open and end
		c.ask(id, "/nothing")
		c.until(func(f http2.Frame) bool {
			return f.Header().StreamID == id && f.Header().Flags.Has(http2.FlagDataEndStream)
		})
	}
	wr.write([]byte("still there"))
	c.until(func(f http2.Frame) bool {
		data, ok := f.(*http2.DataFrame)
		return ok && string(data.Data()) == "still there"
	})
	wr.write(nil)
	c.until(func(f http2.Frame) bool {
		away, ok := f.(*http2.GoAwayFrame)
		return ok && away.ErrCode == http2.ErrCodeNo
	})
	if _, err := c.ReadFrame(); err != io.EOF {
		t.Errorf("the connection stays open: %v", err)
	}
}

// raw is a client that sets its windows itself.
type raw struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
}

func dial(t *testing.T, address string, trust *tls.Config) *raw {
	t.Helper()
	conn, err := tls.Dial("tcp", address, trust)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return &raw{http2.NewFramer(conn, conn), t, conn}
}

// wide is what a client adds to the connection window so that streams can be detached.
const wide = 8 << 20

// greeted starts a server and a client of it; stream and more are as for greet.
func greeted(t *testing.T, stream, more uint32) (c *raw, writers chan *writer) {
	t.Helper()
	address, trust, writers := serving(t, time.Minute)
	c = dial(t, address, trust)
	c.greet(stream, more)
	return c, writers
}

// detachOne does so too, and detaches stream 1, which has the window.
func detachOne(t *testing.T, stream uint32) (*raw, *writer) {
	t.Helper()
	c, writers := greeted(t, stream, wide)
	c.ask(1, "/detach")
	wr := <-writers
	if wr == nil {
		t.Fatal("not detached")
	}
	return c, wr
}

func (c *raw) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// greet begins the connection. stream is the window of each stream; more is added to the window of
// the connection.
func (c *raw) greet(stream, more uint32) {
	c.t.Helper()
	c.must(c.hello(stream, more))
}

func (c *raw) hello(stream, more uint32) error {
	_, err := io.WriteString(c.conn, http2.ClientPreface)
	if err == nil {
		err = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: stream})
	}
	if err == nil && more > 0 {
		err = c.WriteWindowUpdate(0, more)
	}
	return err
}

func (c *raw) ask(id uint32, path string) {
	c.t.Helper()
	c.request(id, path, true)
}

// request sends a request; whole says whether it ends there.
func (c *raw) request(id uint32, path string, whole bool) {
	c.t.Helper()
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
		c.must(fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: whole, EndHeaders: true}))
}

// until reads frames until wanted returns true.
func (c *raw) until(wanted func(http2.Frame) bool) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		c.must(err)
		if wanted(f) {
			return
		}
	}
}

func TestNoByteIsSentBeyondAWindow(t *testing.T) {
	c, wr := detachOne(t, 10)
	want := []byte("a watch's event that does not fit into any window")
	wr.write(want)
	wr.write(nil)
	var got []byte
	for window := 10; ; {
		f, err := c.ReadFrame()
		c.must(err)
		data, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		if window -= len(data.Data()); window < 0 {
			t.Fatalf("%d bytes too many", -window)
		}
		got = append(got, data.Data()...)
		if data.StreamEnded() {
			break
		}
		if window == 0 {
			window = 7
			c.must(c.WriteWindowUpdate(1, 7))
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestANewInitialWindowHoldsForDetachedStreams(t *testing.T) {
	c, wr := detachOne(t, 0)
	wr.write([]byte("twelve bytes"))
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 12}))
	c.until(func(f http2.Frame) bool {
		data, ok := f.(*http2.DataFrame)
		return ok && string(data.Data()) == "twelve bytes"
	})
}

func TestAResponseStaysWithItsHandlerIfTheWindowIsSmall(t *testing.T) {
	c, writers := greeted(t, 1<<20, 0)
	c.ask(1, "/detach")
	if wr := <-writers; wr != nil {
		t.Error("it was detached")
	}
	c.until(func(f http2.Frame) bool { return f.Header().Flags.Has(http2.FlagDataEndStream) })
}

func TestAStreamThatEndsWithinAnEventIsReset(t *testing.T) {
	c, wr := detachOne(t, 5)
	wr.write([]byte("too long"))
	c.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameData })
	wr.hungUp() // as at the end of the watch's time
	c.until(func(f http2.Frame) bool {
		reset, ok := f.(*http2.RSTStreamFrame)
		return ok && reset.ErrCode == http2.ErrCodeInternal
	})
}

// The frames of this test, in both directions, concern only the library.
func TestFramesPassUnchangedHoweverTheyAreCut(t *testing.T) {
	var frames bytes.Buffer
	framer := http2.NewFramer(&frames, nil)
	for i := range 200 {
		err := errors.Join(framer.WriteData(uint32(2*i+1), i%3 == 0, make([]byte, i*i%5000)), framer.WritePing(i%2 == 0, [8]byte{byte(i)}),
			framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15}), framer.WriteRSTStream(uint32(2*i+1), 0))
		if err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		mine, other := tlsPair(t)
		c := newConn(mine, nil, taskpool.NewPool(), 0, time.Minute)
		c.window = 1 << 30
		sent := append([]byte(http2.ClientPreface), frames.Bytes()...)
		go func() {
			cut(random, frames.Bytes(), func(b []byte) { _, _ = c.Write(b) })
		}()
		if got := read(t, other, frames.Len()); !bytes.Equal(got, frames.Bytes()) {
			t.Fatalf("seed %d: other bytes were written", seed)
		}
		go func() { _, _ = other.Write(sent) }()
		got := make([]byte, 0, len(sent))
		for len(got) < len(sent) {
			n, err := c.Read(got[len(got):min(len(sent), len(got)+1+random.IntN(100))])
			if err != nil {
				t.Fatal(err)
			}
			got = got[:len(got)+n]
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: other bytes were read", seed)
		}
	}
}

func cut(random *rand.Rand, b []byte, fn func([]byte)) {
	for len(b) > 0 {
		n := min(len(b), 1+random.IntN(1+random.IntN(3000)))
		fn(b[:n])
		b = b[n:]
	}
}

func read(t *testing.T, from io.Reader, n int) []byte {
	t.Helper()
	got := make([]byte, n)
	if _, err := io.ReadFull(from, got); err != nil {
		t.Fatal(err)
	}
	return got
}

func tlsPair(t *testing.T) (server, client *tls.Conn) {
	t.Helper()
	pair := httptest.NewTLSServer(nil)
	pair.Close() // the tests need only its certificate
	a, b := net.Pipe()
	server, client = tls.Server(a, &tls.Config{Certificates: pair.TLS.Certificates}), tls.Client(b, &tls.Config{InsecureSkipVerify: true})
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	return server, client
}

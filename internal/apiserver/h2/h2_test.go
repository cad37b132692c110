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

// taker has taken an answer, and writes to it what it is given.
type taker struct {
	answer *Stream
	pool   *taskpool.Pool
	task   taskpool.Task
	gone   chan struct{}

	mu   sync.Mutex // guards what follows
	todo []byte
	end  bool
	lost bool
}

// take answers with a header, and takes the answer; nil when it can not be taken.
func take(pool *taskpool.Pool, w http.ResponseWriter, r *http.Request) *taker {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	tk := &taker{answer: Answer(r.Context(), w), pool: pool, gone: make(chan struct{})}
	if tk.answer == nil {
		return nil
	}
	tk.task = tk.answer.Task(tk.turn)
	if !tk.answer.Take(&tk.task, tk.hungUp) {
		return nil
	}
	return tk
}

func (tk *taker) hungUp() {
	go func() { // the group's lock is not for those who are called
		tk.mu.Lock()
		tk.lost = true
		tk.mu.Unlock()
		close(tk.gone)
		tk.pool.Wake(&tk.task)
	}()
}

// write gives the taker something to write; nothing ends the answer.
func (tk *taker) write(b []byte) {
	tk.mu.Lock()
	tk.todo, tk.end = append(tk.todo, b...), len(b) == 0
	tk.mu.Unlock()
	tk.pool.Wake(&tk.task)
}

func (tk *taker) turn() time.Duration {
	tk.mu.Lock()
	defer tk.mu.Unlock()
	for !tk.lost {
		room := tk.answer.Room()
		switch {
		case room == 0:
			return taskpool.Idle
		case len(tk.todo) == 0 && !tk.end:
			return taskpool.Idle
		case len(tk.todo) == 0:
			tk.answer.End()
			return taskpool.Ended
		}
		n := min(len(tk.todo), 1000) // also when there is less room
		_, _ = tk.answer.Write(tk.todo[:n])
		tk.todo = tk.todo[n:]
	}
	tk.answer.End()
	return taskpool.Ended
}

// late is what the handler of /late waits for.
var late = make(chan struct{})

// serving is a server of HTTP/2 whose path /take is taken and given to the channel; /echo gives back what it is sent, and /none says that an answer could not be taken.
func serving(t testing.TB, idle time.Duration) (address string, trust *tls.Config, takers chan *taker) {
	t.Helper()
	pool := taskpool.NewPool()
	takers = make(chan *taker, 100)
	mux := http.NewServeMux()
	mux.HandleFunc("/take", func(w http.ResponseWriter, r *http.Request) { takers <- take(pool, w, r) })
	mux.HandleFunc("/late", func(w http.ResponseWriter, r *http.Request) {
		<-late
		takers <- take(pool, w, r)
	})
	mux.HandleFunc("/much", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte{'m'}, much)) })
	mux.HandleFunc("/refused", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		answer := Answer(r.Context(), w)
		answer.End()
		if task := answer.Task(nil); answer.Take(&task, nil) {
			t.Error("it is taken though nobody wants it any more")
		}
	})
	mux.HandleFunc("/away", func(_ http.ResponseWriter, r *http.Request) { GoAway(r.Context()) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	pair := httptest.NewTLSServer(nil)
	pair.Close() // only its certificate is wanted
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
	return listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}, takers
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

func TestAnAnswerIsTaken(t *testing.T) {
	address, trust, takers := serving(t, time.Minute)
	client := clientOf(t, trust)
	body, err := get(t.Context(), client, "https://"+address+"/take")
	if err != nil {
		t.Fatal(err)
	}
	tk := <-takers
	if tk == nil {
		t.Fatal("it can not be taken: does the library look different?")
	}
	tk.write([]byte("one "))
	tk.write([]byte("two"))
	tk.write(nil)
	if got, err := io.ReadAll(body); err != nil || string(got) != "one two" {
		t.Errorf("%q %v", got, err)
	}
}

// TestEverybodyOnAConnectionGetsWhatIsTheirs has answers of handlers, of any size, between those that were taken, some of which are given up.
func TestEverybodyOnAConnectionGetsWhatIsTheirs(t *testing.T) {
	address, trust, takers := serving(t, time.Minute)
	client := clientOf(t, trust)
	const each = 300_000
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel) // when all have got theirs
		body, err := get(ctx, client, "https://"+address+"/take")
		if err != nil {
			t.Fatal(err)
		}
		tk := <-takers
		if tk == nil {
			t.Fatal("not taken")
		}
		if i%5 == 4 { // hangs up in between
			all.Go(func() {
				tk.write(bytes.Repeat([]byte{byte(i)}, each))
				_, _ = io.ReadFull(body, make([]byte, 1000))
				cancel()
				<-tk.gone
			})
			continue
		}
		all.Go(func() {
			for range 10 {
				tk.write(bytes.Repeat([]byte{byte(i)}, each/10))
			}
			tk.write(nil)
		})
		all.Go(func() {
			got, err := io.ReadAll(body)
			if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, each)) {
				t.Errorf("stream %d got %d bytes, not all of them its own; %v", i, len(got), err)
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

func TestAConnectionThatBreaksHangsUpItsStreams(t *testing.T) {
	c, tk := taking(t, 1<<20)
	_ = c.conn.Close()
	<-tk.gone
}

func TestAConnectionIsIdleWhenNothingOfItIsTaken(t *testing.T) {
	c, tk := taking(t, 1<<20)
	of := tk.answer.conn
	of.mu.Lock()
	of.idle = time.Millisecond // from now on: a slow machine may need a while until here
	of.mu.Unlock()
	for id := uint32(3); id < 13; id += 2 { // others come and go
		c.ask(id, "/nothing")
		c.until(func(f http2.Frame) bool {
			return f.Header().StreamID == id && f.Header().Flags.Has(http2.FlagDataEndStream)
		})
	}
	tk.write([]byte("still there"))
	c.until(func(f http2.Frame) bool {
		data, ok := f.(*http2.DataFrame)
		return ok && string(data.Data()) == "still there"
	})
	tk.write(nil)
	c.until(func(f http2.Frame) bool {
		away, ok := f.(*http2.GoAwayFrame)
		return ok && away.ErrCode == http2.ErrCodeNo
	})
	if _, err := c.ReadFrame(); err != io.EOF {
		t.Errorf("the connection goes on: %v", err)
	}
}

// raw is a client that keeps its windows as small as it likes.
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

// wide is what a client adds to a connection's window so that its streams can be taken.
const wide = 8 << 20

// greeted is a client of a server of its own; stream and more are as for greet.
func greeted(t *testing.T, stream, more uint32) (c *raw, takers chan *taker) {
	t.Helper()
	address, trust, takers := serving(t, time.Minute)
	c = dial(t, address, trust)
	c.greet(stream, more)
	return c, takers
}

// taking is one whose stream 1, with such a window, has been taken.
func taking(t *testing.T, stream uint32) (*raw, *taker) {
	t.Helper()
	c, takers := greeted(t, stream, wide)
	c.ask(1, "/take")
	tk := <-takers
	if tk == nil {
		t.Fatal("not taken")
	}
	return c, tk
}

func (c *raw) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// greet begins the connection; stream is each stream's window, more what that of the connection gets beyond the usual.
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
	c.askFor(id, path, true)
}

// askFor asks; whole: that is all of the request.
func (c *raw) askFor(id uint32, path string, whole bool) {
	c.t.Helper()
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
		c.must(fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: whole, EndHeaders: true}))
}

// until reads frames up to the one that is wanted.
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

func TestNothingIsSentBeyondAWindow(t *testing.T) {
	c, tk := taking(t, 10)
	want := []byte("a watch's event that does not fit into any window")
	tk.write(want)
	tk.write(nil)
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

func TestAWindowThatIsChangedHoldsForStreamsThatAreTaken(t *testing.T) {
	c, tk := taking(t, 0)
	tk.write([]byte("twelve bytes"))
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 12}))
	c.until(func(f http2.Frame) bool {
		data, ok := f.(*http2.DataFrame)
		return ok && string(data.Data()) == "twelve bytes"
	})
}

func TestAnAnswerOnASmallConnectionStaysItsHandlers(t *testing.T) {
	c, takers := greeted(t, 1<<20, 0)
	c.ask(1, "/take")
	if tk := <-takers; tk != nil {
		t.Error("it was taken")
	}
	c.until(func(f http2.Frame) bool { return f.Header().Flags.Has(http2.FlagDataEndStream) })
}

func TestAStreamEndedHalfWayThroughAnEventIsBrokenOff(t *testing.T) {
	c, tk := taking(t, 5)
	tk.write([]byte("too long"))
	c.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameData })
	tk.hungUp() // as when the watch's time is over
	c.until(func(f http2.Frame) bool {
		reset, ok := f.(*http2.RSTStreamFrame)
		return ok && reset.ErrCode == http2.ErrCodeInternal
	})
}

// TestFramesPassUnchangedHoweverTheyAreCut is about both directions of what concerns only the library.
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
		c.real = 1 << 30
		sent := append([]byte(http2.ClientPreface), frames.Bytes()...)
		go func() {
			cut(random, frames.Bytes(), func(b []byte) { _, _ = c.Write(b) })
		}()
		if got := read(t, other, frames.Len()); !bytes.Equal(got, frames.Bytes()) {
			t.Fatalf("seed %d: written otherwise", seed)
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
			t.Fatalf("seed %d: read otherwise", seed)
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
	pair.Close() // only its certificate is wanted
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

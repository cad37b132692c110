package handshake

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/socket"
)

// timeout is longer than any test takes.
const timeout = time.Minute

var aCertificate = sync.OnceValue(func() tls.Certificate {
	server := httptest.NewTLSServer(nil)
	server.Close() // the tests need only its certificate
	return server.TLS.Certificates[0]
})

// open makes a listener. When the test ends, it closes it and accepts what is left.
func open(t *testing.T, c Config) *listener {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{Certificates: []tls.Certificate{aCertificate()}}
	}
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	l := Listen(socket.Listen(tcp), c).(*listener)
	t.Cleanup(func() {
		_ = l.Close() // the test may have closed it
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// begun returns a connection whose client has sent its first message, and sends nothing more.
func begun(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c := dial(t, l)
	first := make(chan error, 1)
	go func() {
		first <- tls.Client(&halting{Conn: c}, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context())
	}()
	if err := <-first; !errors.Is(err, errHalt) {
		t.Fatal(err)
	}
	return c
}

var errHalt = errors.New("this connection cannot be read")

// halting is a connection that cannot be read.
type halting struct{ net.Conn }

func (halting) Read([]byte) (int, error) { return 0, errHalt }

// Close leaves the connection open.
func (halting) Close() error { return nil }

func handshake(t *testing.T, c net.Conn) *tls.Conn {
	t.Helper()
	conn := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

func accept(t *testing.T, l net.Listener) *tls.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*tls.Conn)
}

func TestASilentClientHasNoTurn(t *testing.T) {
	l := open(t, Config{})
	for range 4 * cap(l.turns) {
		dial(t, l)
	}
	handshake(t, dial(t, l))
	if !accept(t, l).ConnectionState().HandshakeComplete {
		t.Error("the handshake has not ended")
	}
}

func TestAClientThatStopsHalfwayDelaysOthersByOneTurn(t *testing.T) {
	l := open(t, Config{})
	for range 4 * cap(l.turns) {
		begun(t, l)
	}
	handshake(t, dial(t, l))
	if !accept(t, l).ConnectionState().HandshakeComplete {
		t.Error("the handshake has not ended")
	}
}

func TestAClientThatHasWaitedLongNeedsNoTurn(t *testing.T) {
	l := open(t, Config{maxTurn: time.Hour, maxWait: time.Millisecond})
	for range cap(l.turns) {
		begun(t, l)
	}
	handshake(t, dial(t, l))
	if !accept(t, l).ConnectionState().HandshakeComplete {
		t.Error("the handshake has not ended")
	}
}

func TestNoMoreHandshakesThanTurnsRunAtATime(t *testing.T) {
	var under, most, all atomic.Int64
	l := open(t, Config{maxTurn: time.Hour, maxWait: time.Hour, TLS: &tls.Config{
		Certificates: []tls.Certificate{aCertificate()},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			for n := under.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					return nil, nil
				}
			}
		},
		VerifyConnection: func(tls.ConnectionState) error { under.Add(-1); all.Add(1); return nil },
	}})
	const clients = 200
	var wg sync.WaitGroup
	for range clients {
		c := dial(t, l)
		wg.Go(func() {
			if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for range clients {
		accept(t, l)
	}
	wg.Wait()
	if all.Load() != clients || most.Load() > int64(cap(l.turns)) {
		t.Errorf("%d handshakes, %d at a time where there are %d turns", all.Load(), most.Load(), cap(l.turns))
	}
}

func TestAHandshakeThatHasBegunWhenTheListenerClosesIsAccepted(t *testing.T) {
	hello := make(chan struct{})
	proceed := make(chan struct{})
	l := open(t, Config{Grace: timeout, TLS: &tls.Config{
		Certificates:       []tls.Certificate{aCertificate()},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { close(hello); <-proceed; return nil, nil },
	}})
	late := dial(t, l)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := tls.Client(late, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-hello
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	accept(t, l)
	wg.Wait()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener accepts: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener accepts at the second call: %v", err)
	}
}

func TestAClosedListenerDoesNotWaitForSilentClients(t *testing.T) {
	l := open(t, Config{}) // Grace is 0
	c := dial(t, l)
	handshake(t, dial(t, l))
	accept(t, l) // of the client that came second
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if conn := accept(t, l); conn.HandshakeContext(t.Context()) == nil {
		t.Error("the handshake with a silent client is complete")
	} else {
		_ = conn.Close()
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection of the silent client stays open: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener accepts: %v", err)
	}
}

func TestAPanicInTheConfigurationEndsOneConnection(t *testing.T) {
	told := make(chan any, 1)
	var first atomic.Bool
	l := open(t, Config{OnPanic: func(v any) { told <- v }, TLS: &tls.Config{
		Certificates: []tls.Certificate{aCertificate()},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if first.CompareAndSwap(false, true) {
				panic("oh")
			}
			return nil, nil
		},
	}})
	begun(t, l)
	if v := <-told; v != "oh" {
		t.Errorf("OnPanic got %v", v)
	}
	accept(t, l)
	handshake(t, dial(t, l))
	accept(t, l)
}

// The HTTP server answers clients without TLS as usual, and serves both versions of HTTP.
func TestAnHTTPServerServesAcceptedConnections(t *testing.T) {
	logged := make(chan string, 1)
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		ReadHeaderTimeout: timeout, ErrorLog: logTo(logged),
	}
	protocols := []string{"h2", "http/1.1"}
	l := open(t, Config{TLS: &tls.Config{Certificates: []tls.Certificate{aCertificate()}, NextProtos: protocols}})
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() {
		if err := errors.Join(server.Shutdown(context.WithoutCancel(t.Context())), ignore(<-done, http.ErrServerClosed)); err != nil {
			t.Error(err)
		}
	}()
	for _, proto := range protocols {
		client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: proto == "h2", TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}}}}
		resp, err := client.Get("https://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{"h2": "HTTP/2.0", "http/1.1": "HTTP/1.1"}[proto]; string(body) != want {
			t.Errorf("%s is served as %s", proto, body)
		}
		client.CloseIdleConnections()
	}
	plain := dial(t, l)
	if _, err := io.WriteString(plain, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(plain), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if line := <-logged; resp.StatusCode != http.StatusBadRequest || !strings.Contains(line, "TLS handshake error from "+plain.LocalAddr().String()) {
		t.Errorf("answered with %s, logged as %q", resp.Status, line)
	}
}

type lines chan<- string

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) { l <- string(line); return len(line), nil }

func logTo(to chan<- string) *log.Logger { return log.New(lines(to), "", 0) }

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

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

// patience is longer than any test takes.
const patience = time.Minute

var aCertificate = sync.OnceValue(func() tls.Certificate {
	server := httptest.NewTLSServer(nil)
	server.Close() // only its certificate is wanted
	return server.TLS.Certificates[0]
})

// open listens for what a test needs; the listener is closed when the test ends, and has to be through then.
func open(t *testing.T, c Config) *listener {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{Certificates: []tls.Certificate{aCertificate()}}
	}
	if c.Patience == 0 {
		c.Patience = patience
	}
	l := Listen(socket.Listen(tcp), c).(*listener)
	t.Cleanup(func() {
		_ = l.Close() // perhaps again
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

// begun is a connection whose client has said hello and then stops.
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

var errHalt = errors.New("nothing is read")

// halting does not read.
type halting struct{ net.Conn }

func (halting) Read([]byte) (int, error) { return 0, errHalt }

// Close leaves it open.
func (halting) Close() error { return nil }

func shake(t *testing.T, c net.Conn) *tls.Conn {
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

func TestWhoSaysNothingHasNoTurn(t *testing.T) {
	l := open(t, Config{})
	for range 4 * cap(l.turns) {
		dial(t, l)
	}
	shake(t, dial(t, l))
	if !accept(t, l).ConnectionState().HandshakeComplete {
		t.Error("the handshake has not ended")
	}
}

func TestWhoStopsHalfwayHoldsOthersUpForATurnOnly(t *testing.T) {
	l := open(t, Config{})
	for range 4 * cap(l.turns) {
		begun(t, l)
	}
	shake(t, dial(t, l))
	if !accept(t, l).ConnectionState().HandshakeComplete {
		t.Error("the handshake has not ended")
	}
}

func TestWhoHasWaitedForLongNeedsNoTurn(t *testing.T) {
	l := open(t, Config{length: time.Hour, wait: time.Millisecond})
	for range cap(l.turns) {
		begun(t, l)
	}
	shake(t, dial(t, l))
	if !accept(t, l).ConnectionState().HandshakeComplete {
		t.Error("the handshake has not ended")
	}
}

func TestNoMoreHandshakesAtATimeThanThereAreTurns(t *testing.T) {
	var under, most, all atomic.Int64
	l := open(t, Config{length: time.Hour, wait: time.Hour, TLS: &tls.Config{
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

func TestWhoHasBegunWhenTheListenerClosesIsAccepted(t *testing.T) {
	hello := make(chan struct{})
	goOn := make(chan struct{})
	l := open(t, Config{Grace: patience, TLS: &tls.Config{
		Certificates:       []tls.Certificate{aCertificate()},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { close(hello); <-goOn; return nil, nil },
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
	close(goOn)
	accept(t, l)
	wg.Wait()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener accepts: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("asked again it accepts: %v", err)
	}
}

func TestAClosedListenerDoesNotWaitForTheSilent(t *testing.T) {
	l := open(t, Config{}) // no grace at all
	c := dial(t, l)
	shake(t, dial(t, l))
	accept(t, l) // which came later
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if conn := accept(t, l); conn.HandshakeContext(t.Context()) == nil {
		t.Error("a handshake without a client's words is complete")
	} else {
		_ = conn.Close()
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client is not told: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener accepts: %v", err)
	}
}

func TestAPanicOfTheConfigurationEndsItsConnectionOnly(t *testing.T) {
	told := make(chan any, 1)
	var first atomic.Bool
	l := open(t, Config{Panicked: func(v any) { told <- v }, TLS: &tls.Config{
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
		t.Errorf("told of %v", v)
	}
	accept(t, l)
	shake(t, dial(t, l))
	accept(t, l)
}

// The HTTP server says what it says to those who speak without TLS, and serves both versions of HTTP.
func TestAnHTTPServerServesWhatIsAccepted(t *testing.T) {
	logged := make(chan string, 1)
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		ReadHeaderTimeout: patience, ErrorLog: logTo(logged),
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

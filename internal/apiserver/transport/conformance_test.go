package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// The suite of this file holds for each kind of transport.

// server is an http.Server behind a transport.
type server struct {
	Transport
	t    *testing.T
	pool *taskpool.Pool
	url  string
	// versions are clients for HTTP/1.1 and HTTP/2, by their major version.
	versions map[int]*http.Client
	// logged are the lines of the server's log.
	logged chan string
	// writers are the responses that /write has begun.
	writers chan *writer
	// stop shuts the server down and waits for it.
	stop func() error
}

// onEachKind runs a test with a server of each kind.
func onEachKind(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	for _, kind := range []Kind{Fast, Plain} {
		t.Run(string(kind), func(t *testing.T) { test(t, serve(t, kind)) })
	}
}

// onEachVersion does so for each version of HTTP.
func onEachVersion(t *testing.T, test func(t *testing.T, s *server, by *http.Client)) {
	t.Helper()
	onEachKind(t, func(t *testing.T, s *server) {
		for major, by := range s.versions {
			t.Run(fmt.Sprintf("HTTP/%d", major), func(t *testing.T) { test(t, s, by) })
		}
	})
}

func serve(t *testing.T, kind Kind) *server {
	t.Helper()
	s := &server{
		t: t, pool: taskpool.NewPool(), logged: make(chan string, 100), writers: make(chan *writer, 100),
	}
	var err error
	s.Transport, err = New(kind, Config{
		Pool: s.pool, WriteTimeout: time.Minute, HandshakeGrace: time.Second, Logger: slog.Default(),
	})
	if err != nil {
		t.Fatal(err)
	}
	certificates := httptest.NewTLSServer(nil)
	certificates.Close()
	web := &http.Server{
		Handler: s.routes(), ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: certificates.TLS.Certificates},
		ErrorLog:  log.New(lines(s.logged), "", 0),
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := s.Prepare(web, tcp)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	s.stop = func() error {
		err := web.Shutdown(context.WithoutCancel(t.Context()))
		if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		return errors.Join(err, s.Close())
	}
	s.url = "https://" + tcp.Addr().String()
	s.versions = map[int]*http.Client{1: client("http/1.1"), 2: client("h2")}
	t.Cleanup(func() {
		for _, c := range s.versions {
			c.CloseIdleConnections()
		}
		_ = web.Close()
		_ = s.Close()
	})
	return s
}

func client(proto string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: proto == "h2",
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}},
	}}
}

type lines chan<- string

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) { l <- string(line); return len(line), nil }

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/version", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.ProtoMajor)
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("/address", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.RemoteAddr)
	})
	mux.HandleFunc("/leave", func(w http.ResponseWriter, r *http.Request) {
		s.GoAway(w, r)
		fmt.Fprint(w, r.RemoteAddr)
	})
	mux.HandleFunc("/write", func(w http.ResponseWriter, r *http.Request) {
		wr := newWriter(s.pool)
		if err := wr.begin(s.Transport, w, r); err != nil {
			s.t.Error(err)
			return
		}
		s.writers <- wr
		wr.wait(r.Context(), w)
	})
	return mux
}

// get sends a request and returns the body of the response.
func (s *server) get(t *testing.T, by *http.Client, path string) string {
	t.Helper()
	resp, err := by.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// write opens a response of /write.
func (s *server) write(t *testing.T, by *http.Client) (body io.ReadCloser, wr *writer) {
	t.Helper()
	resp, err := by.Get(s.url + "/write")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Body, <-s.writers
}

func TestBothVersionsOfHTTPAreServed(t *testing.T) {
	onEachKind(t, func(t *testing.T, s *server) {
		for major, by := range s.versions {
			if got := s.get(t, by, "/version"); got != fmt.Sprint(major) {
				t.Errorf("a client of HTTP/%d is served by HTTP/%s", major, got)
			}
		}
	})
}

func TestALargeBodyArrivesWhole(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	onEachVersion(t, func(t *testing.T, s *server, by *http.Client) {
		resp, err := by.Post(s.url+"/echo", "", bytes.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, large) {
			t.Errorf("%d of %d bytes came back: %v", len(got), len(large), err)
		}
	})
}

func TestAResponseArrivesPieceByPieceUntilItsEnd(t *testing.T) {
	onEachVersion(t, func(t *testing.T, s *server, by *http.Client) {
		body, wr := s.write(t, by)
		defer body.Close()
		for _, want := range []string{"one ", "two ", strings.Repeat("large ", 100_000)} {
			wr.write(want)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(body, got); err != nil || string(got) != want {
				t.Fatalf("%.20q came: %v", got, err)
			}
		}
		wr.write("")
		if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
			t.Errorf("the response ends with %q: %v", rest, err)
		}
		<-wr.done
	})
}

func TestAResponseEndsWhenItsClientHangsUp(t *testing.T) {
	onEachVersion(t, func(t *testing.T, s *server, by *http.Client) {
		body, wr := s.write(t, by)
		wr.write("hello")
		if _, err := io.ReadFull(body, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		_ = body.Close()
		<-wr.done
	})
}

// A slow client must not lose anything, and must not make others wait.
func TestASlowClientKeepsNoOtherResponseWaiting(t *testing.T) {
	onEachVersion(t, func(t *testing.T, s *server, by *http.Client) {
		slow, slowly := s.write(t, by)
		defer slow.Close()
		much := strings.Repeat("0123456789abcdef", 1<<18) // more than socket and window take
		slowly.write(much)
		slowly.write("")
		body, wr := s.write(t, by)
		defer body.Close()
		wr.write("quick")
		wr.write("")
		if got, err := io.ReadAll(body); err != nil || string(got) != "quick" {
			t.Errorf("%q came: %v", got, err)
		}
		if got, err := io.ReadAll(slow); err != nil || string(got) != much {
			t.Errorf("the slow client got %d bytes of %d: %v", len(got), len(much), err)
		}
	})
}

func TestAClientThatIsSentAwayComesByAnotherConnection(t *testing.T) {
	onEachKind(t, func(t *testing.T, s *server) {
		by := s.versions[2]
		first := s.get(t, by, "/address")
		if again := s.get(t, by, "/address"); again != first {
			t.Fatalf("the connection was not used again: %s, then %s", first, again)
		}
		if last := s.get(t, by, "/leave"); last != first {
			t.Errorf("the request that is told to leave came from %s, not %s", last, first)
		}
		if next := s.get(t, by, "/address"); next == first {
			t.Error("the client did not leave")
		}
	})
}

func TestAClientWithoutTLSIsToldSo(t *testing.T) {
	onEachKind(t, func(t *testing.T, s *server) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		want := "TLS handshake error from " + conn.LocalAddr().String()
		if line := <-s.logged; resp.StatusCode != http.StatusBadRequest || !strings.Contains(line, want) {
			t.Errorf("answered with %s, logged as %q", resp.Status, line)
		}
	})
}

func TestAServerShutsDown(t *testing.T) {
	onEachKind(t, func(t *testing.T, s *server) {
		for _, by := range s.versions {
			s.get(t, by, "/version")
			by.CloseIdleConnections()
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
		for _, by := range s.versions {
			if _, err := by.Get(s.url + "/version"); err == nil {
				t.Error("a server that has shut down answers")
			}
		}
	})
}

func TestATransportThatServesNothingCloses(t *testing.T) {
	for _, kind := range []Kind{Fast, Plain} {
		tr, err := New(kind, Config{Pool: taskpool.NewPool(), Logger: slog.Default()})
		if err == nil {
			err = tr.Close()
		}
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestLargeListsTakeLanesIfThereAreAny(t *testing.T) {
	onEachKind(t, func(t *testing.T, s *server) {
		for range 100 {
			leave := s.Lanes().Take()
			leave()
		}
		turns := s.Lanes().Turns(1)
		for range 100 {
			turns.Step()
		}
		turns.End()
	})
}

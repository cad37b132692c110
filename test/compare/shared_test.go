package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// frame returns a watch frame with size bytes.
func frame(size int) []byte {
	return append([]byte{0, byte(size >> 16), byte(size >> 8), byte(size)}, bytes.Repeat([]byte{'e'}, size)...)
}

func TestStreamsOfASharedConnectionAreSeparateAndComplete(t *testing.T) {
	var opened sync.WaitGroup
	opened.Add(3)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.Error(w, "no such thing", http.StatusNotFound)
			return
		}
		_ = http.NewResponseController(w).Flush()
		opened.Done()
		opened.Wait()
		for range 300 { // more than a stream's window
			_, _ = w.Write(frame(50000))
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := &clients{address: s.Listener.Addr().String(), tls: &tls.Config{InsecureSkipVerify: true}}
	streams, err := c.sharedStreams(t.Context(), "/events", 3)
	if err != nil {
		t.Fatal(err)
	}
	counter := &eventCounter{}
	counter.ended.Store(true)
	var wg sync.WaitGroup
	for _, st := range streams {
		wg.Go(func() { counter.count(st) })
	}
	wg.Wait()
	if got := counter.events.Load(); got != 900 {
		t.Errorf("%d events came, want 900", got)
	}
	for _, st := range streams {
		if err := st.follow(func([]byte) {}); !errors.Is(err, io.EOF) {
			t.Errorf("a stream ended with %v", err)
		}
		st.Close()
	}
	if _, err := c.sharedStreams(t.Context(), "/missing", 1); err == nil {
		t.Error("a refusal was taken for a stream")
	}
}

func TestAStreamThatIsClosedEnds(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := &clients{address: s.Listener.Addr().String(), tls: &tls.Config{InsecureSkipVerify: true}}
	streams, err := c.sharedStreams(t.Context(), "/events", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range streams {
		if err := st.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := st.follow(func([]byte) {}); err == nil {
			t.Error("a closed stream continues")
		}
	}
}

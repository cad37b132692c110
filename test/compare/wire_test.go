package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// serve answers every request of a wire with handler.
func serve(t *testing.T, handler http.HandlerFunc) *wire {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := &clients{address: u.Host, tls: &tls.Config{InsecureSkipVerify: true}}
	w, err := c.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.conn.Close() })
	return w
}

func TestAWireReadsAnswersToTheirEnd(t *testing.T) {
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/length":
			fmt.Fprintf(rw, "%s %s", r.Header.Get("Content-Type"), body)
		case "/chunks":
			for range 3 {
				fmt.Fprint(rw, strings.Repeat("x", 1000))
				_ = http.NewResponseController(rw).Flush()
			}
		default:
			http.Error(rw, "no such thing", http.StatusNotFound)
		}
	})
	for range 2 { // the first round must leave nothing on the wire
		if n, err := w.do("POST", "/length", jsonType, jsonType, []byte("{}")); err != nil || n != int64(len(jsonType+" {}")) {
			t.Fatalf("with a length: %d bytes, %v", n, err)
		}
		if n, err := w.do("GET", "/chunks", "", jsonType, nil); err != nil || n != 3000 {
			t.Fatalf("in chunks: %d bytes, %v", n, err)
		}
		if _, err := w.do("GET", "/missing", "", jsonType, nil); err == nil || !strings.Contains(err.Error(), "404: no such thing") {
			t.Fatalf("a failure: %v", err)
		}
	}
}

func TestEventsAreCountedInAnyChunks(t *testing.T) {
	var stream strings.Builder
	for _, size := range []int{1, 5, 300, 4000} {
		stream.Write([]byte{0, 0, byte(size >> 8), byte(size)})
		stream.WriteString(strings.Repeat("e", size))
	}
	for cut := 1; cut < 400; cut += 7 {
		counter := &eventCounter{}
		counter.ended.Store(true)
		counter.count(wireStream{body: &cutter{r: strings.NewReader(stream.String()), n: cut}})
		if got := counter.events.Load(); got != 4 {
			t.Errorf("%d events when %d bytes come at a time, want 4", got, cut)
		}
	}
	dropped := &eventCounter{}
	dropped.count(wireStream{body: &chunks{in: bufio.NewReader(strings.NewReader("0\r\n\r\n"))}})
	if dropped.dropped.Load() != 1 {
		t.Error("a stream that ends before the measurement does is not counted as dropped")
	}
}

// cutter returns n bytes at a time.
type cutter struct {
	r io.Reader
	n int
}

func (c *cutter) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), c.n)]) }

func TestTheTableShowsRatioAndBudget(t *testing.T) {
	table := render(map[string]figures{
		"upstream": {"ready": {value: 2}, "create": {value: 1000}},
		"knarr":    {"ready": {value: 0.5}, "create": {value: 6500, note: "noted"}},
	})
	for _, want := range []string{
		"| 2.00 s | 0.50 s | 1/4.0 | 0.40 s | no |",
		"| 1000 /s | 6500 /s (noted) | 6.5 × | 6000 /s | yes |",
		"| get, 64 in flight | — | — |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

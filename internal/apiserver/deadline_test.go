package apiserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/client"
)

// Otherwise a client that sends a byte now and then would keep its seats as long as it likes.
func TestBodyThatDoesNotArriveTimesOut(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, _, _ := running(t, s)
		for _, length := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /api/v1/namespaces/default/configmaps?timeout=200ms HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n", length)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s: %v", length, err)
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(body), "Timeout: request did not complete within requested timeout - context deadline exceeded") {
				t.Errorf("%s: %s %s", length, resp.Status, body)
			}
		}
		const want = `apiserver_request_terminations_total{code="504",component="apiserver",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1"} 2`
		eventually(t, func() error {
			if _, page := fetch(t, url+"/metrics"); !strings.Contains(page, want+"\n") {
				return errors.New("lacks " + want)
			}
			return nil
		})
	}, func(c *Config) { c.RequestTimeout = 12 * time.Minute })
}

// Otherwise a refused client that sends no body would keep its connection, and delay the server's
// shutdown until its timeout.
func TestBodyThatDoesNotArriveDoesNotDelayShutdown(t *testing.T) {
	s := newTestServer(t, func(c *Config) {
		c.ShutdownRetryAfter, c.RequestTimeout, c.ShutdownTimeout = true, 12*time.Second, time.Hour
	})
	url, stop, ended := running(t, s)
	s.inProgress.Add(1) // a request in progress
	stop()
	eventually(t, func() error {
		if !s.leaving.Load() {
			return errors.New("the server has not begun to shut down")
		}
		return nil
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%s", resp.Status)
	}
	s.inProgress.Add(-1)
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the shutdown waits for the body")
	}
}

// Otherwise a client that does not read the response would keep it in memory, and its seats.
func TestUnreadResponseTimesOut(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.RequestTimeout = 200 * time.Millisecond })
	for i := range 24 { // more than the kernel buffers
		large := configMap(fmt.Sprint("large-", i))
		large.Data["a"] = strings.Repeat("x", 1<<20-1)
		if _, err := client.Create(t.Context(), s.ownClient(), large); err != nil {
			t.Fatal(err)
		}
	}
	// The watch sends the objects in its initial events.
	for _, query := range []string{"?watch=1", ""} {
		ended := make(chan struct{})
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			s.Handler().ServeHTTP(w, r)
		}))
		defer ts.Close()
		conn, err := net.Dial("tcp", ts.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /api/v1/namespaces/default/configmaps%s HTTP/1.1\r\nHost: x\r\n\r\n", query)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%q: the server waits for a client that does not read", query)
		}
	}
	w := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	const want = `apiserver_request_aborts_total{group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1"} 1`
	if !strings.Contains(w.Body.String(), want+"\n") {
		t.Error("lacks " + want)
	}
}

func TestRequestedTimeouts(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, _, _ := running(t, s)
		for query, want := range map[string]string{
			"?timeout=abc":               `400 invalid timeout specified in the request URL - time: invalid duration \"abc\"`,
			"?timeout=10h":               "200",
			"?timeout=-1s":               "200",
			"?watch=1&timeoutSeconds=-1": "200",
			// This overflows nanoseconds: as upstream, such a watch ends at once.
			"?watch=1&timeoutSeconds=9999999999": "200",
			"?watch=1&timeout=abc":               "200",
			"?timeoutSeconds=x":                  `400 strconv.ParseInt: parsing \"x\": invalid syntax`,
			"?limit=92233720368547758070":        `400 strconv.ParseInt: parsing \"92233720368547758070\": value out of range`,
		} {
			if query == "?watch=1&timeout=abc" {
				query += "&timeoutSeconds=1"
			}
			resp, body := fetch(t, url+"/api/v1/configmaps"+query)
			code, text, _ := strings.Cut(want, " ")
			if fmt.Sprint(resp.StatusCode) != code || !strings.Contains(body, text) {
				t.Errorf("%s: %s %s, want %s", query, resp.Status, body, want)
			}
		}
		for path, want := range map[string]int{
			"/version?timeout=invalid": http.StatusBadRequest, "/version?timeout=3m": http.StatusOK, "/version?timeout=0s": http.StatusOK,
			"/api?timeout=invalid": http.StatusBadRequest, "/healthz?timeout=invalid": http.StatusBadRequest, "/nothing?timeout=invalid": http.StatusBadRequest,
			"/debug/pprof/cmdline?timeout=invalid": http.StatusOK,
		} {
			resp, body := fetch(t, url+path)
			if resp.StatusCode != want || want == http.StatusBadRequest && !strings.Contains(body, "invalid timeout specified in the request URL") {
				t.Errorf("%s: %s %s, want %d", path, resp.Status, body, want)
			}
		}
	})
}

package apiserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// running serves over HTTP as the process does, until stop is called.
func running(t *testing.T, s *Server) (url string, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, listener, nil) }()
	t.Cleanup(cancel)
	url = "http://" + listener.Addr().String()
	eventually(t, func() error {
		if resp, body := fetch(t, url+"/readyz"); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("not ready: %s", body)
		}
		return nil
	})
	return url, cancel, done
}

func TestStoppingServerLosesNoRequest(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, stop, ended := running(t, s)
		watch, err := http.Get(url + "/api/v1/configmaps?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		send, answer := beginConfigMap(url)
		stop()
		eventually(t, func() error {
			if resp, _ := fetch(t, url+"/readyz/shutdown"); resp.StatusCode != http.StatusInternalServerError {
				return fmt.Errorf("the server still reports that it is ready")
			}
			return nil
		})
		// The watch ends once new requests are refused; the shutdown waits for the write in
		// progress.
		if _, err := io.ReadAll(watch.Body); err != nil {
			t.Errorf("the watch was broken off: %v", err)
		}
		_, _ = io.WriteString(send, `{"name":"late"}}`)
		_ = send.Close()
		if got := <-answer; got != "201 Created" {
			t.Errorf("the request in progress got %q", got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}, func(c *Config) { c.ShutdownDelay = 50 * time.Millisecond })
}

// beginConfigMap sends the first half of a request; the response's status comes after the rest is
// sent.
func beginConfigMap(url string) (rest *io.PipeWriter, answer <-chan string) {
	body, rest := io.Pipe()
	status := make(chan string, 1)
	go func() {
		resp, err := http.Post(url+"/api/v1/namespaces/default/configmaps", "application/json", body)
		if err != nil {
			status <- err.Error()
			return
		}
		_ = resp.Body.Close()
		status <- resp.Status
	}()
	// The request is in progress.
	_, _ = io.WriteString(rest, `{"apiVersion":"v1","kind":"ConfigMap","metadata":`)
	return rest, status
}

func TestHealthHasNamedChecks(t *testing.T) {
	s := newTestServer(t)
	url, _, _ := running(t, s)
	for path, want := range map[string]string{
		"/livez":                                 "ok",
		"/readyz/etcd":                           "ok",
		"/readyz/nosuch":                         "404 page not found\n",
		"/livez?verbose&exclude=etcd&exclude=no": "[+]ping ok\n[+]log ok\n[+]loopback-serving-certificate ok\n[+]etcd excluded: ok\n…warn: some health checks cannot be excluded: no matches for \"no\"\nlivez check passed\n",
		"/readyz?verbose":                        "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]etcd-readiness ok\n[+]informer-sync ok\n…[+]shutdown ok\nreadyz check passed\n",
	} {
		_, got := fetch(t, url+path)
		begin, end, _ := strings.Cut(want, "…")
		if !strings.HasPrefix(got, begin) || !strings.HasSuffix(got, end) || !strings.Contains(want, "…") && got != want {
			t.Errorf("%s: got %q", path, got)
		}
	}
}

func TestMetricsAndRootPaths(t *testing.T) {
	s := newTestServer(t)
	url, _, _ := running(t, s)
	for range 2 {
		fetch(t, url+"/api/v1/namespaces/default/endpoints/none")
	}
	_, got := fetch(t, url+"/metrics")
	for _, want := range []string{
		`apiserver_request_total{code="404",component="apiserver",dry_run="",group="",resource="endpoints",scope="resource",subresource="",verb="GET",version="v1"} 2`,
		`apiserver_request_sli_duration_seconds_count{component="apiserver",group="",resource="endpoints",scope="resource",subresource="",verb="GET",version="v1"} 2`,
		`apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1`,
		`apiserver_resource_objects{group="apiregistration.k8s.io",resource="apiservices"} `,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s", want)
		}
	}
	_, got = fetch(t, url+"/")
	for _, want := range []string{`"/apis/apps/v1"`, `"/api/v1"`, `"/readyz/shutdown"`, `"/livez/ping"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the root lacks %s", want)
		}
	}
}

func TestStoppingServerAnswersWithRetryAfter(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, stop, ended := running(t, s)
		send, answer := beginConfigMap(url)
		eventually(t, func() error {
			if n := s.inProgress.Load(); n != 1 {
				return fmt.Errorf("%d requests under way", n)
			}
			return nil
		})
		stop()
		eventually(t, func() error {
			resp, text := fetch(t, url+"/api/v1/namespaces")
			if resp.StatusCode != http.StatusTooManyRequests {
				return fmt.Errorf("%s", resp.Status)
			}
			if resp.Header.Get("Retry-After") != "5" || !resp.Close || text != shuttingDownMessage+"\n" {
				t.Errorf("%v %q", resp.Header, text)
			}
			return nil
		})
		for _, path := range []string{"/livez", "/metrics"} {
			if resp, _ := fetch(t, url+path); resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
		if resp, _ := fetch(t, url+"/readyz"); resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("/readyz: %s", resp.Status)
		}
		_, _ = io.WriteString(send, `{"name":"late"}}`)
		_ = send.Close()
		if got := <-answer; got != "201 Created" {
			t.Errorf("the request in progress got %q", got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}, func(c *Config) { c.ShutdownRetryAfter = true })
}

package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// lines opens a watch over HTTP/1.1 and returns its events one by one; "" at the end.
func lines(t *testing.T, url string, header ...string) (next func() string, hangUp func()) {
	t.Helper()
	return linesBy(t, http.DefaultClient, 1, url, header...)
}

// secure is running with TLS, with a client for HTTP/1.1 and one for HTTP/2.
func secure(t *testing.T, s *Server) (url string, one, two *http.Client) {
	t.Helper()
	pair := httptest.NewTLSServer(nil)
	pair.Close() // only its certificate is used
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, listener, &tls.Config{Certificates: pair.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	trust := func(proto string) *http.Client {
		return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: proto == "h2", TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}}}}
	}
	return "https://" + listener.Addr().String(), trust("http/1.1"), trust("h2")
}

func linesBy(t *testing.T, client *http.Client, proto int, url string, header ...string) (next func() string, hangUp func()) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != proto {
		t.Fatalf("%s %s", resp.Proto, resp.Status)
	}
	in := bufio.NewReader(resp.Body)
	return func() string {
		line, err := in.ReadString('\n')
		if err != nil && line != "" {
			t.Errorf("half an event: %q", line)
		}
		return line
	}, func() { _ = resp.Body.Close() }
}

func event(t *testing.T, line string) (what string, obj *corev1.ConfigMap) {
	t.Helper()
	var ev struct {
		Type   string
		Object *corev1.ConfigMap
	}
	if err := json.Unmarshal([]byte(line), &ev); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return ev.Type, ev.Object
}

const (
	defaultMaps = "/api/v1/namespaces/default/configmaps"
	writes      = 300
)

// countUp writes the ConfigMap "counted" repeatedly; its value counts up.
func countUp(t *testing.T, s *Server, padding int) {
	t.Helper()
	c := s.Client(auth.Component("tester"))
	obj := configMap("counted")
	obj.Data["a"], obj.Data["padding"] = "0", strings.Repeat("x", padding)
	obj, err := client.Create(t.Context(), c, obj)
	for i := 1; err == nil && i < writes; i++ {
		obj = obj.DeepCopy()
		obj.Data["a"] = fmt.Sprint(i)
		obj, err = client.Update(t.Context(), c, obj)
	}
	if err != nil {
		t.Error(err)
	}
}

// follows checks that the watch gets every change once and in order; it returns false if the watch
// ends before the last one.
func follows(t *testing.T, next func() string) bool {
	t.Helper()
	for i := range writes {
		line := next()
		if line == "" {
			return false
		}
		if what, obj := event(t, line); obj.Name != "counted" || obj.Data["a"] != fmt.Sprint(i) || i > 0 && what != "MODIFIED" {
			t.Fatalf("event %d is %s %s %s", i, what, obj.Name, obj.Data["a"])
		}
	}
	return true
}

func TestManyStreamsGetEveryEventInOrder(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, one, two := secure(t, s)
		reader, err := s.endpoints.Registry("", "configmaps").Cache(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begin := reader.Snapshot().Revision()
		var all []func() string
		for i := range 15 {
			query := []string{"?watch=1", fmt.Sprint("?watch=1&allowWatchBookmarks=true&resourceVersion=", begin), "?watch=1&labelSelector=no!=body", "?watch=1&fieldSelector=metadata.name=counted"}[i%4]
			next, _ := linesBy(t, one, 1, url+defaultMaps+query)
			all = append(all, next)
			next, _ = linesBy(t, two, 2, url+defaultMaps+query)
			all = append(all, next)
		}
		done := make(chan struct{})
		go func() { defer close(done); countUp(t, s, 0) }()
		late, _ := linesBy(t, one, 1, fmt.Sprint(url, defaultMaps, "?watch=1&resourceVersion=", begin))
		for _, next := range append(all, late) {
			if !follows(t, next) {
				t.Error("a watch ended early")
			}
		}
		<-done
	})
}

func TestSlowStreamLosesNothingAndDelaysNoOther(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, one, two := secure(t, s)
		var quick, slow []func() string
		for proto, client := range map[int]*http.Client{1: one, 2: two} {
			next, _ := linesBy(t, client, proto, url+defaultMaps+"?watch=1")
			quick = append(quick, next)
			next, _ = linesBy(t, client, proto, url+defaultMaps+"?watch=1")
			slow = append(slow, next) // read at the very end: more than hub and socket keep
		}
		done := make(chan struct{})
		go func() { defer close(done); countUp(t, s, 50<<10) }()
		var all sync.WaitGroup
		for _, next := range quick {
			all.Go(func() {
				if !follows(t, next) {
					t.Error("a quick watch ended early")
				}
			})
		}
		all.Wait()
		<-done
		for _, next := range slow {
			if !follows(t, next) {
				t.Error("a slow watch ended early")
			}
		}
	})
}

func TestPanicEndsOnlyItsWatch(t *testing.T) {
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	url, one, two := secure(t, s)
	ended := func(name string, next func() string) {
		t.Helper()
		if line := next(); line != "" {
			t.Errorf("%s: the watch got %q", name, line)
		}
	}
	alone, _ := linesBy(t, one, 1, url+defaultMaps+"?watch=1&resourceVersion=0", "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	mustCreate(t, c, configMap("first"))
	if line := alone(); line == "" {
		t.Fatal("no event")
	}
	s.watches.DamageStreams()
	shared, _ := linesBy(t, one, 1, url+defaultMaps+"?watch=1")
	shared2, _ := linesBy(t, two, 2, url+defaultMaps+"?watch=1")
	for _, next := range []func() string{shared, shared2} {
		if what, obj := event(t, next()); what != "ADDED" || obj.Name != "first" {
			t.Fatal(what, obj.Name)
		}
	}
	mustCreate(t, c, configMap("second"))
	ended("the broken one", alone)
	for _, next := range []func() string{shared, shared2} {
		if what, obj := event(t, next()); what != "ADDED" || obj.Name != "second" {
			t.Fatal(what, obj.Name)
		}
	}
	eventually(t, func() error {
		if _, hubs := s.watches.Count(); hubs < 2 {
			return errors.New("the watches have not joined")
		}
		return nil
	})
	s.watches.DamageHubs()
	mustCreate(t, c, configMap("third"))
	ended("of a broken hub, over HTTP/1.1", shared)
	ended("of a broken hub, over HTTP/2", shared2)
	again, _ := linesBy(t, one, 1, url+defaultMaps+"?watch=1")
	for range 3 {
		if what, _ := event(t, again()); what != "ADDED" {
			t.Fatal(what)
		}
	}
	mustCreate(t, c, configMap("fourth"))
	if what, obj := event(t, again()); what != "ADDED" || obj.Name != "fourth" {
		t.Error(what, obj.Name)
	}
}

func TestStreamIsRecordedUntilItsEnd(t *testing.T) {
	for proto := 1; proto <= 2; proto++ {
		s, sink := recorded(t)
		url, one, two := secure(t, s)
		_, hangUp := linesBy(t, []*http.Client{one, two}[proto-1], proto, url+defaultMaps+"?watch=1")
		stages := func(want string) {
			t.Helper()
			eventually(t, func() error {
				sink.mu.Lock()
				defer sink.mu.Unlock()
				var list []string
				for _, ev := range sink.list {
					list = append(list, string(ev.Stage))
				}
				if got := fmt.Sprint(list); got != want {
					return fmt.Errorf("HTTP/%d: %s", proto, got)
				}
				return nil
			})
		}
		open := func(want string) {
			t.Helper()
			eventually(t, func() error {
				w := httptest.NewRecorder()
				s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				_, rest, _ := strings.Cut(w.Body.String(), `apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps"`)
				line, _, _ := strings.Cut(rest, "\n")
				if n := line[strings.LastIndexByte(line, ' ')+1:]; n != want {
					return fmt.Errorf("HTTP/%d: %s watches are open", proto, n)
				}
				return nil
			})
		}
		stages("[RequestReceived ResponseStarted]")
		without(t, s, 1)
		open("1")
		hangUp()
		stages("[RequestReceived ResponseStarted ResponseComplete]")
		open("0")
	}
}

// without waits until this number of watches have left their handlers.
func without(t *testing.T, s *Server, want int) {
	t.Helper()
	eventually(t, func() error {
		if n, _ := s.watches.Count(); n != want {
			return fmt.Errorf("%d watches are without a handler", n)
		}
		return nil
	})
}

// TestLegacyWatchPathHasNoInitialEventsBookmark: as upstream, only the query parameter watch
// implies the defaults of initial events.
func TestLegacyWatchPathHasNoInitialEventsBookmark(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, _, _ := running(t, s)
		c := s.Client(auth.Component("tester"))
		if _, err := client.Create(t.Context(), c, configMap("first")); err != nil {
			t.Fatal(err)
		}
		for path, told := range map[string]bool{
			"/api/v1/watch/namespaces/default/configmaps?allowWatchBookmarks=true":         false,
			"/api/v1/watch/namespaces/default/configmaps?allowWatchBookmarks=true&watch=1": true,
			defaultMaps + "?allowWatchBookmarks=true&watch=1":                              true,
		} {
			next, hangUp := lines(t, url+path)
			if what, obj := event(t, next()); what != "ADDED" || obj.Name != "first" {
				t.Fatalf("%s: %s %s", path, what, obj.Name)
			}
			if told {
				if what, obj := event(t, next()); what != "BOOKMARK" || obj.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
					t.Errorf("%s: %s %v", path, what, obj.Annotations)
				}
			}
			again := configMap("first")
			again.Data["path"] = path
			if _, err := client.Update(t.Context(), c, again); err != nil {
				t.Fatal(err)
			}
			if what, obj := event(t, next()); what != "MODIFIED" || obj.Name != "first" {
				t.Errorf("%s: %s %v", path, what, obj.Annotations)
			}
			hangUp()
		}
	})
}

func TestStreamBeginsWithTheCurrentObjects(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, _, _ := running(t, s)
		c := s.Client(auth.Component("tester"))
		for i := range 50 {
			obj := configMap(fmt.Sprintf("n-%02d", i))
			obj.Data["padding"] = strings.Repeat("x", 10<<10) // several turns' worth
			if _, err := client.Create(t.Context(), c, obj); err != nil {
				t.Fatal(err)
			}
		}
		next, _ := lines(t, url+defaultMaps+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
		for i := range 50 {
			if what, obj := event(t, next()); what != "ADDED" || obj.Name != fmt.Sprintf("n-%02d", i) {
				t.Fatalf("event %d: %s %s", i, what, obj.Name)
			}
		}
		if what, obj := event(t, next()); what != "BOOKMARK" || obj.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Fatalf("%s %v", what, obj.Annotations)
		}
		if _, err := client.Create(t.Context(), c, configMap("last")); err != nil {
			t.Fatal(err)
		}
		if what, obj := event(t, next()); what != "ADDED" || obj.Name != "last" {
			t.Fatalf("%s %s", what, obj.Name)
		}
		table, _ := lines(t, url+defaultMaps+"?watch=1", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if first := table(); !strings.Contains(first, `"columnDefinitions":[{`) {
			t.Errorf("%.200s", first)
		}
	})
}

func TestStreamsEndAndFreeEverything(t *testing.T) {
	s := newTestServer(t)
	url, stop, ended := running(t, s)
	_, hangUp := lines(t, url+defaultMaps+"?watch=1")
	short, _ := lines(t, url+defaultMaps+"?watch=1&timeoutSeconds=1")
	old, _ := lines(t, url+"/api/v1/namespaces/other/configmaps?watch=1")
	if line := short(); line != "" {
		t.Errorf("an unexpected event: %s", line)
	}
	hangUp()
	eventually(t, func() error {
		if streams, hubs := s.watches.Count(); streams != 1 || hubs != 1 {
			return fmt.Errorf("%d streams, %d hubs", streams, hubs)
		}
		return nil
	})
	stop()
	if line := old(); line != "" {
		t.Errorf("an unexpected event: %s", line)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestShutdownEndsAllWatchesOneAfterTheOther(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, stop, ended := running(t, s)
		var open []func() string
		for range 5 {
			next, _ := lines(t, url+defaultMaps+"?watch=1")
			open = append(open, next)
		}
		// However it is served.
		response, err := http.Get(url + "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		stop()
		for _, next := range open {
			if line := next(); line != "" {
				t.Errorf("an unexpected event: %s", line)
			}
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}, func(c *Config) { c.ShutdownWatches = 100 * time.Millisecond })
}

func TestHandledWatchesEndOnce(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.ShutdownWatches = time.Millisecond })
	watch := wire.ParseRequest(httptest.NewRequest("GET", "/api/v1/pods?watch=1", nil))
	first, done := s.withDeadline(t.Context(), nil, watch, 0)
	second, end := s.withDeadline(t.Context(), nil, watch, 0)
	defer done()
	end()
	if len(s.handled.ends) != 1 {
		t.Errorf("%d are open", len(s.handled.ends))
	}
	s.endWatchesGradually(time.Millisecond)
	if first.Err() == nil || second.Err() == nil {
		t.Errorf("a watch continues: %v, %v", first.Err(), second.Err())
	}
	other, over := s.withDeadline(t.Context(), nil, wire.ParseRequest(httptest.NewRequest("GET", "/api/v1/namespaces/a/pods/b/log", nil)), 0)
	defer over()
	s.endWatchesGradually(time.Millisecond)
	if other.Err() != nil {
		t.Error("other requests end with the watches")
	}
}

func TestHTTP2WatchLeavesItsHandler(t *testing.T) {
	s := newTestServer(t)
	url, _, two := secure(t, s)
	c := s.Client(auth.Component("tester"))
	mustCreate(t, c, configMap("first"))
	next, hangUp := linesBy(t, two, 2, url+defaultMaps+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
	without(t, s, 1)
	mustCreate(t, c, configMap("second"))
	for _, want := range []string{"ADDED first", "BOOKMARK ", "ADDED second"} {
		what, obj := event(t, next())
		if got := what + " " + obj.Name; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	hangUp()
	without(t, s, 0)
}

// The end of such a watch lies so far in the past that nothing could be written until a little
// after it: the client got a broken connection instead of a response.
func TestWatchWithNegativeTimeoutIsAnswered(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, one, two := secure(t, s)
		mustCreate(t, s.Client(auth.Component("tester")), configMap("there"))
		for _, seconds := range []string{"-1", "-5", "9223372037", "99999999999999999", "-9223372036854775808"} {
			for _, client := range []*http.Client{one, two} {
				resp, err := client.Get(url + defaultMaps + "?watch=1&timeoutSeconds=" + seconds)
				if err != nil {
					t.Errorf("%s: %v", seconds, err)
					continue
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s, %v", seconds, resp.Status, err)
				}
				_ = resp.Body.Close()
			}
		}
		without(t, s, 0)
	})
}

func TestHTTP2WatchEndsInTime(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, s *Server) {
		url, _, two := secure(t, s)
		next, _ := linesBy(t, two, 2, url+defaultMaps+"?watch=1&timeoutSeconds=1&allowWatchBookmarks=true")
		for what := ""; ; {
			line := next()
			if line == "" {
				if what != "BOOKMARK" {
					t.Errorf("the last event is %q", what)
				}
				break
			}
			what, _ = event(t, line)
		}
		without(t, s, 0)
	})
}

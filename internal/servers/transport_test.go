package servers

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

const base = "https://kubernetes.default.svc"

// call sends a request and returns the answer's text.
func call(t *testing.T, rt http.RoundTripper, method, path, body string) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, base+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	response, err := rt.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func (c *cluster) get(path string) string {
	c.t.Helper()
	code, text, err := call(c.t, c.user, http.MethodGet, path, "")
	if err != nil || code != http.StatusOK {
		c.t.Fatalf("GET %s: %d %s, %v", path, code, text, err)
	}
	return text
}

func (c *cluster) expect(got string, want *fake) {
	c.t.Helper()
	if got != want.address {
		c.t.Errorf("answered by %s, want %s", got, want.address)
	}
}

// watch opens a watch and returns a channel that is closed when it ends.
func (c *cluster) watch() (ended chan struct{}) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/watch", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := c.user.RoundTrip(request)
	if err != nil {
		c.t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
	}()
	return ended
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not within 20 s", what)
	}
}

func TestRequestsGoToThePreferredServerOnOneConnection(t *testing.T) {
	c := newCluster(t)
	best := c.order()[0]
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { c.expect(c.get("/"), best) })
	}
	all.Wait()
	if n := best.hello.Load(); n != 1 {
		t.Errorf("%d TLS handshakes of requests at the same time", n)
	}
}

func TestRequestsGoToAnotherServerWhenOneIsKilled(t *testing.T) {
	c := newCluster(t)
	order := c.order()
	c.expect(c.get("/"), order[0])
	ended := c.watch()
	order[0].kill()
	within(t, "the watch ends", ended)
	code, text, err := call(t, c.user, http.MethodPost, "/", "a body")
	if err != nil || code != http.StatusOK {
		t.Fatalf("a write whose connection cannot be made: %d %s, %v", code, text, err)
	}
	c.expect(text, order[1])
	order[1].kill()
	c.expect(c.get("/"), order[2])
	order[2].kill()
	_, _, err = call(t, c.user, http.MethodGet, "/", "")
	for _, f := range order {
		if err == nil || !strings.Contains(err.Error(), f.address) {
			t.Errorf("the error does not name %s: %v", f.address, err)
		}
	}
	// One of them comes back at its address.
	c.servers[order[1].address] = start(t, c.ca, order[1].address, apiServer())
	c.expect(c.get("/"), order[1])
}

func TestAStoppedServerIsLeft(t *testing.T) {
	c := newCluster(t)
	order := c.order()
	c.expect(c.get("/"), order[0])
	ended := c.watch()
	order[0].listener.freeze(true)
	defer order[0].listener.freeze(false)
	c.expect(c.get("/"), order[1])
	within(t, "the watch ends", ended)
	if got := c.pool.Current(); got != order[1].address {
		t.Errorf("current: %s", got)
	}
}

func TestAStoppedServerIsNoticedByPingsAlone(t *testing.T) {
	c := newCluster(t)
	order := c.order()
	ended := c.watch()
	order[0].listener.freeze(true)
	defer order[0].listener.freeze(false)
	within(t, "the watch ends", ended)
	c.expect(c.get("/"), order[1])
}

func TestAWriteWithAnUnknownOutcomeIsNotRepeated(t *testing.T) {
	c := newCluster(t)
	order := c.order()
	c.expect(c.get("/"), order[0])
	order[0].listener.freeze(true)
	if code, text, err := call(t, c.user, http.MethodPost, "/", "a body"); err == nil {
		t.Errorf("a write that the server may have got was repeated: %d %s", code, text)
	}
	order[0].listener.freeze(false)
	if n := order[1].writes.Load() + order[2].writes.Load(); n != 0 {
		t.Errorf("the write reached %d other servers", n)
	}
}

func TestAServerThatCannotServeIsLeft(t *testing.T) {
	t.Run("its answers are errors", func(t *testing.T) {
		c := newCluster(t)
		order := c.order()
		ended := c.watch()
		order[0].unready.Store(true)
		c.expect(c.get("/"), order[1])
		within(t, "the watch is moved", ended)
	})
	t.Run("it does not answer", func(t *testing.T) {
		c := newCluster(t)
		order := c.order()
		c.expect(c.get("/"), order[0])
		order[0].stuck.Store(true)
		c.expect(c.get("/"), order[1])
	})
	t.Run("the answer of a write stands", func(t *testing.T) {
		c := newCluster(t)
		order := c.order()
		order[0].unready.Store(true)
		if code, _, err := call(t, c.user, http.MethodPost, "/", "a body"); err != nil || code != http.StatusServiceUnavailable {
			t.Errorf("%d, %v", code, err)
		}
		c.expect(c.get("/"), order[1])
		if n := order[1].writes.Load(); n != 0 {
			t.Errorf("the write reached another server")
		}
	})
	t.Run("no server can serve", func(t *testing.T) {
		c := newCluster(t)
		order := c.order()
		for _, f := range order {
			f.unready.Store(true)
		}
		if code, _, err := call(t, c.user, http.MethodGet, "/", ""); err != nil || code != http.StatusServiceUnavailable {
			t.Errorf("%d, %v", code, err)
		}
		if got := c.pool.Current(); got != order[0].address {
			t.Errorf("current: %s, although no other server is better", got)
		}
	})
}

func TestAnErrorOfAReadyServerIsItsAnswer(t *testing.T) {
	c := newCluster(t)
	best := c.order()[0]
	for range 3 {
		if code, _, err := call(t, c.user, http.MethodGet, "/fails", ""); err != nil || code != http.StatusInternalServerError {
			t.Errorf("%d, %v", code, err)
		}
	}
	c.expect(c.get("/"), best)
	if n := best.seen.Load(); n != 4 {
		t.Errorf("the server got %d requests", n)
	}
}

func TestAUserReturnsToThePreferredServer(t *testing.T) {
	c := newCluster(t)
	order := c.order()
	c.expect(c.get("/"), order[0])
	order[0].kill()
	c.expect(c.get("/"), order[1])
	back := start(t, c.ca, order[0].address, apiServer())
	c.expect(c.get("/"), order[1])

	now := time.Now()
	var mu sync.Mutex
	c.pool.mu.Lock()
	c.pool.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	c.pool.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.user.Run(ctx) }()
	defer func() { cancel(); <-done }()
	ended := c.watch() // on the second server
	for deadline := time.Now().Add(20 * time.Second); c.pool.Current() != back.address; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the user does not return")
		}
		mu.Lock()
		now = now.Add(10 * time.Second)
		mu.Unlock()
	}
	c.expect(c.get("/"), back)
	select {
	case <-ended:
		t.Error("the return ended a watch")
	default:
	}
}

func TestOnlyCertificatesOfAPIServersAreTrusted(t *testing.T) {
	ca := newAuthority(t)
	c := &cluster{t: t, ca: ca}
	try := func(ca *authority, certificate x509.Certificate) error {
		f := start(t, ca, "", certificate)
		p := NewPool(Options{Given: []string{f.address}})
		_, _, err := call(t, c.transport(p), http.MethodGet, "/", "")
		return err
	}
	if err := try(ca, apiServer()); err != nil {
		t.Errorf("an API server: %v", err)
	}
	own := x509.Certificate{Subject: pkix.Name{CommonName: "front"}, IPAddresses: apiServer().IPAddresses}
	own.IPAddresses[0] = []byte{127, 0, 0, 1}
	if err := try(ca, own); err != nil {
		t.Errorf("a certificate with the server's address: %v", err)
	}
	other := apiServer()
	other.DNSNames, other.IPAddresses = []string{"other.example"}, nil
	if err := try(ca, other); err == nil {
		t.Error("a certificate with other names is trusted")
	}
	node := apiServer()
	node.Subject = pkix.Name{CommonName: "system:node:kubernetes.default.svc", Organization: []string{"system:nodes"}}
	if err := try(ca, node); err == nil || !strings.Contains(err.Error(), "of node") {
		t.Errorf("a node's certificate: %v", err)
	}
	if err := try(newAuthority(t), apiServer()); err == nil {
		t.Error("a certificate of another CA is trusted")
	}
}

func TestRotateOpensNewConnections(t *testing.T) {
	c := newCluster(t)
	best := c.order()[0]
	ended := c.watch()
	c.user.Rotate()
	c.expect(c.get("/"), best)
	if n := best.hello.Load(); n != 2 {
		t.Errorf("%d TLS handshakes", n)
	}
	within(t, "the watch on the earlier connection ends", ended)
	c.expect(c.get("/"), best)
}

func TestAClosedConnectionIsNoDeadServer(t *testing.T) {
	c := newCluster(t)
	best := c.order()[0]
	c.user.timing.pingAfter, c.user.timing.pingWait = time.Second, 2*time.Second
	for range 2 {
		c.expect(c.get("/"), best)
		time.Sleep(990 * time.Millisecond) // a ping is due
		c.user.CloseIdleConnections()
	}
	time.Sleep(3 * time.Second)
	if got := c.pool.Current(); got != best.address {
		t.Errorf("current: %q", got)
	}
}

func TestAllTransportsOfAPoolLeaveAServerThatCannotServe(t *testing.T) {
	c := newCluster(t)
	order := c.order()
	first := c.user
	c.user = c.transport(c.pool)
	ended := c.watch() // on a transport without other requests
	c.user = first
	order[0].unready.Store(true)
	c.expect(c.get("/"), order[1])
	within(t, "the watch of the other transport is moved", ended)
}

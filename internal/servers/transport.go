package servers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// timing has the durations of a Transport. Tests shorten them.
type timing struct {
	// A connection without a frame for pingAfter is asked for one. It is dead without an answer
	// within pingWait.
	pingAfter, pingWait time.Duration
	// patience is how long a request waits for its answer before the server is probed.
	patience time.Duration
	// probe is the time limit of a probe, and how long its success is valid.
	probe time.Duration
	// connect is the time for connecting while there are other servers to try. It doubles up to
	// longestConnect when no server could be reached, for links with long delays.
	connect, longestConnect time.Duration
	// grace is how long answers may continue on connections that are not used for new requests.
	grace time.Duration
	// look is the interval at which a better server is probed.
	look time.Duration
}

var usual = timing{
	pingAfter: 2 * time.Second, pingWait: 3 * time.Second,
	patience: time.Second, probe: ProbeTimeout,
	connect: 2 * time.Second, longestConnect: 16 * time.Second,
	grace: 5 * time.Second, look: 20 * time.Second,
}

// Transport sends HTTP requests to the current server of a Pool. Requests use any host; the
// Transport replaces it by a server's address.
//
// A request is sent to another server if the first one cannot have seen it, or if it is a read
// without an answer. A write with an unknown outcome returns an error. A watch that ends in the
// middle returns an error to its reader, who opens it again at its last revision.
type Transport struct {
	pool        *Pool
	roots       func() *x509.CertPool
	certificate func() *tls.Certificate
	timing      timing

	mu     sync.Mutex
	links  map[string]*link
	probes map[string]*probe
	unmet  int // requests in a row for which no server could be reached
}

// probe is the check of a server that many requests share.
type probe struct {
	done  chan struct{}
	left  bool      // the server was left for another one; set before done is closed
	ended time.Time // zero while it runs
}

// NewTransport makes a Transport. For new connections, roots returns the CAs of the servers'
// certificates, and certificate the client's certificate; without certificate, requests have a
// token.
func NewTransport(pool *Pool, roots func() *x509.CertPool, certificate func() *tls.Certificate) *Transport {
	t := &Transport{pool: pool, roots: roots, certificate: certificate, timing: usual, links: map[string]*link{}, probes: map[string]*probe{}}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.transports = append(pool.transports, t)
	return t
}

// link returns the link to a server.
func (t *Transport) link(address string) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[address]
	if l == nil {
		l = newLink(address, secure(address, t.roots(), t.certificate), t.timing, func() { t.pool.Failed(address, errPings) })
		t.links[address] = l
	}
	return l
}

var errPings = errors.New("the connection is dead: no answer to pings")

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	order := t.pool.Order()
	if len(order) == 0 {
		closeBody(request)
		return nil, errors.New("no server of the cluster is known")
	}
	var failed []error
	again := false // the same server gets a read once more after a lost connection
	for i := 0; i < len(order); i++ {
		address := order[i]
		response, connected, err := t.try(request, address, len(order) > 1, i > 0 || again)
		if err == nil {
			if t.elsewhere(response, request, address, len(order) > 1) {
				failed = append(failed, fmt.Errorf("%s: answers %s, and is not ready", address, response.Status))
				drop(response)
				continue
			}
			t.reached()
			return response, nil
		}
		if request.Context().Err() != nil {
			return nil, err
		}
		if !errors.As(err, new(*leftError)) && !connected {
			t.pool.Failed(address, err)
		}
		failed = append(failed, at(request, address, err))
		switch {
		case !connected && canRepeat(request):
		case connected && isRead(request) && !errors.As(err, new(http2.StreamError)):
			if !again && !errors.As(err, new(*leftError)) && t.pool.Current() == address {
				again = true
				i--
				continue
			}
		default:
			return nil, joined(failed)
		}
		again = false
	}
	t.notReached()
	return nil, joined(failed)
}

// try sends the request to one server. repeated means that it has been sent before. While it has no
// answer, the server is probed if there are others.
func (t *Transport) try(request *http.Request, address string, others, repeated bool) (*http.Response, bool, error) {
	sent := request.Clone(request.Context())
	sent.URL.Scheme, sent.URL.Host, sent.Host = "https", address, ""
	if repeated && request.GetBody != nil {
		var err error
		if sent.Body, err = request.GetBody(); err != nil {
			return nil, false, err
		}
	}
	limit := time.Duration(0)
	if others {
		limit = t.limit()
		defer t.watchOver(address)()
	}
	response, connected, err := t.link(address).send(sent, limit)
	if err == nil {
		t.pool.Succeeded(address)
	}
	return response, connected, err
}

// watchOver probes the server every now and then until stop is called.
func (t *Transport) watchOver(address string) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(t.timing.patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			t.suspect(address)
			timer.Reset(t.timing.patience)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// elsewhere reports whether a read has to be sent to another server, because this one answers with
// an error and is not ready. A write's answer stands; the server is probed in any case.
func (t *Transport) elsewhere(response *http.Response, request *http.Request, address string, others bool) bool {
	switch response.StatusCode {
	case http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return false
	}
	if !others {
		return false
	}
	p := t.suspect(address)
	if !isRead(request) {
		return false
	}
	select {
	case <-p.done:
		return p.left
	case <-request.Context().Done():
		return false
	}
}

// suspect probes a server, and leaves it if it is not ready while another one is. Concurrent calls
// share one probe.
func (t *Transport) suspect(address string) *probe {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.probes[address]; p != nil && (p.ended.IsZero() || !p.left && time.Since(p.ended) < t.timing.probe) {
		return p
	}
	p := &probe{done: make(chan struct{})}
	t.probes[address] = p
	go func() {
		left := t.judge(address)
		t.mu.Lock()
		defer t.mu.Unlock()
		p.left, p.ended = left, time.Now()
		close(p.done)
	}()
	return p
}

// judge reports whether the server was left. A server that no other one can replace is kept.
func (t *Transport) judge(address string) bool {
	why := t.ready(address)
	if why == nil {
		return false
	}
	var others []string
	for _, other := range t.pool.Order() {
		if other != address {
			others = append(others, other)
		}
	}
	next := FirstReady(others, t.ready)
	if next == "" {
		return false
	}
	t.pool.Move(address, next, why)
	t.pool.abandon(address, &leftError{address, why})
	return true
}

// leftError is the cause of requests that are canceled because their server is left.
type leftError struct {
	address string
	why     error
}

func (e *leftError) Error() string {
	return fmt.Sprintf("the server %s is not ready (%v) and did not answer in time", e.address, e.why)
}

func (e *leftError) Unwrap() error { return e.why }

// FirstReady probes servers at the same time and returns the first of the list that is ready.
func FirstReady(addresses []string, ready func(string) error) string {
	results := make([]chan error, len(addresses))
	for i, address := range addresses {
		results[i] = make(chan error, 1)
		go func() { results[i] <- ready(address) }()
	}
	for i, address := range addresses {
		if <-results[i] == nil {
			return address
		}
	}
	return ""
}

// ready probes a server on the connection that requests use.
func (t *Transport) ready(address string) error {
	return Ready(t.link(address), address, t.timing.probe)
}

// ProbeTimeout is the usual time limit of a probe.
const ProbeTimeout = 2 * time.Second

// Ready asks a server for /readyz. Another status than that of a failed check counts as ready.
func Ready(by http.RoundTripper, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := by.RoundTrip(request)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("/readyz has no answer within %s", timeout)
	}
	if err != nil {
		return err
	}
	drop(response)
	if response.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("/readyz answers %s", response.Status)
	}
	return nil
}

// abandon sends requests without an answer elsewhere and closes the connections. Readers of watches
// open them on the new server; until then, they would show nothing new.
func (t *Transport) abandon(address string, why error) {
	t.mu.Lock()
	l := t.links[address]
	delete(t.links, address)
	t.mu.Unlock()
	if l != nil {
		l.leave(why)
		l.close()
	}
}

// Rotate opens new connections from now on, for a new client certificate. Earlier ones are closed
// after a few seconds. Readers of watches open them again.
func (t *Transport) Rotate() {
	t.mu.Lock()
	old := t.links
	t.links = map[string]*link{}
	t.mu.Unlock()
	time.AfterFunc(t.timing.grace, func() {
		for _, l := range old {
			l.close()
		}
	})
}

// CloseIdleConnections closes connections without requests.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.links {
		l.http.CloseIdleConnections()
	}
}

// Run returns to a better server once it has been ready for minutes, until ctx ends. Watches on the
// earlier server continue until they end by themselves.
func (t *Transport) Run(ctx context.Context) error {
	for {
		wait := t.timing.look + rand.N(t.timing.look)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if better := t.pool.Better(); better != "" {
			t.pool.Probed(better, t.ready(better), rand.Float64())
		}
	}
}

// limit is the time for connecting to a server while there are others.
func (t *Transport) limit() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return doubled(t.timing.connect, t.unmet+1, t.timing.longestConnect)
}

func (t *Transport) reached() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unmet = 0
}

func (t *Transport) notReached() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unmet++
}

// attempts are the errors of a request that was sent to several servers.
type attempts []error

func (a attempts) Error() string {
	texts := make([]string, len(a))
	for i, err := range a {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (a attempts) Unwrap() []error { return a }

func joined(failed []error) error {
	if len(failed) == 1 {
		return failed[0]
	}
	return attempts(failed)
}

// at adds the server's address to an error, unless the request's URL or the error has it.
func at(request *http.Request, address string, err error) error {
	if request.URL.Host == address || strings.Contains(err.Error(), address) {
		return err
	}
	return fmt.Errorf("%s: %w", address, err)
}

func isRead(request *http.Request) bool {
	return request.Method == http.MethodGet || request.Method == http.MethodHead || request.Method == http.MethodOptions
}

// canRepeat reports whether the request's body, if any, can be sent again.
func canRepeat(request *http.Request) bool {
	return request.Body == nil || request.Body == http.NoBody || request.GetBody != nil
}

func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}

// drop reads the rest of a short answer, so that its connection can be used again.
func drop(response *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	_ = response.Body.Close()
}

// Addresses returns HOST:PORT of each URL in a list that commas separate (config.JoinURL).
func Addresses(urls string) (out []string) {
	for text := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			out = append(out, u.Host)
		}
	}
	return out
}

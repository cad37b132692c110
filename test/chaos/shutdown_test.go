package chaos

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
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// restful is a client with its own connections of one HTTP version, as administrator or as a
// service account.
type restful struct {
	http    *http.Client
	version int
	address string
	token   string

	mu      sync.Mutex             // guards answers
	answers map[net.Conn]time.Time // time of the last answer on a connection
}

// restful returns a client. An administrator has no token.
func (s *server) restful(version int, token string) *restful {
	s.t.Helper()
	cfg, err := s.config("restful", version)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		cfg = rest.AnonymousClientConfig(cfg)
	}
	trust, err := rest.TLSConfigFor(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	trust.NextProtos = []string{map[int]string{1: "http/1.1", 2: "h2"}[version]}
	transport := &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: version == 2, DialContext: cfg.Dial}
	if version == 1 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &restful{http: &http.Client{Transport: transport}, version: version, address: "https://" + s.listen, token: token, answers: map[net.Conn]time.Time{}}
}

// attempt records how far a request got. If the HTTP library has retried it, it is the last
// attempt.
type attempt struct {
	mu    sync.Mutex
	conn  net.Conn
	since time.Time // the connection was idle since then
	begun time.Time // first byte sent; zero if none was
	sent  time.Time // fully sent; zero if it was not
}

func (c *restful) trace(ctx context.Context, a *attempt) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			a.set(func() { a.conn, a.since, a.begun, a.sent = nil, time.Now(), time.Time{}, time.Time{} })
		},
		GotConn: func(got httptrace.GotConnInfo) {
			c.mu.Lock()
			last, ok := c.answers[got.Conn]
			c.mu.Unlock()
			a.set(func() {
				if a.conn = got.Conn; ok {
					a.since = last
				}
			})
		},
		WroteHeaders: func() { a.set(func() { a.begun = time.Now() }) },
		WroteRequest: func(httptrace.WroteRequestInfo) { a.set(func() { a.sent = time.Now() }) },
	})
}

func (a *attempt) set(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
}

// answered records the end of an answer.
func (c *restful) answered(a *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[a.conn] = time.Now()
}

// idleTime is the time that a stopping server grants an idle connection, far more than a slow
// machine needs for any step.
const idleTime = 30 * time.Second

// lost reports whether a failed request had been sent on a connection that the server had to serve.
// A connection that was idle for more than half of idleTime may be closed while a request is sent
// on it; HTTP/1.1 cannot prevent that.
func (a *attempt) lost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun.IsZero() {
		return false
	}
	sent := a.sent
	if sent.IsZero() {
		sent = time.Now()
	}
	return sent.Sub(a.since) < idleTime/2
}

// send sends one request and reads its answer to the end.
func (c *restful) send(ctx context.Context, a *attempt, method, path string, body io.Reader, header ...string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(c.trace(ctx, a), method, c.address+path, body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.ProtoMajor != c.version {
		return 0, nil, fmt.Errorf("%s instead of HTTP/%d", resp.Proto, c.version)
	}
	answer, err := io.ReadAll(resp.Body)
	if err == nil {
		c.answered(a)
	}
	return resp.StatusCode, answer, err
}

// shutdownRun collects the complaints of the clients of one shutdown.
type shutdownRun struct {
	s         *server
	namespace string

	mu    sync.Mutex // guards the fields below
	made  []string   // paths of objects with an acknowledged creation
	wrong []string
}

func (p *shutdownRun) complain(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

func (p *shutdownRun) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.wrong)
}

func (p *shutdownRun) done(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = append(p.made, path)
}

func (p *shutdownRun) path(resource string) string {
	if resource == "widgets" {
		return "/apis/chaos.example.com/v1/namespaces/" + p.namespace + "/widgets"
	}
	return "/api/v1/namespaces/" + p.namespace + "/" + resource
}

func body(resource, name string) string {
	if resource == "widgets" {
		return fmt.Sprintf(`{"apiVersion":"chaos.example.com/v1","kind":"Widget","metadata":{"name":"%s"},"spec":{"value":"1"}}`, name)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"value":"1"}}`, name)
}

// write creates objects one after the other until the server is gone.
func (p *shutdownRun) write(ctx context.Context, c *restful, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		resource := []string{"configmaps", "widgets"}[i%2]
		object, a := fmt.Sprintf("%s-%d", name, i), &attempt{}
		code, answer, err := c.send(ctx, a, http.MethodPost, p.path(resource), strings.NewReader(body(resource, object)))
		switch {
		case err == nil && code == http.StatusCreated:
			p.done(p.path(resource) + "/" + object)
		case err == nil:
			p.complain("HTTP/%d: creation of %s: %d %s", c.version, object, code, answer)
		case a.lost():
			p.complain("HTTP/%d: creation of %s: sent, but %v", c.version, object, err)
			return
		default:
			return // the server is gone
		}
	}
}

// read lists objects until the server is gone.
func (p *shutdownRun) read(ctx context.Context, c *restful) {
	for ctx.Err() == nil {
		a := &attempt{}
		code, answer, err := c.send(ctx, a, http.MethodGet, p.path("configmaps"), nil)
		switch {
		case err == nil && (code != http.StatusOK || !json.Valid(answer)):
			p.complain("HTTP/%d: list: %d %.200s", c.version, code, answer)
		case err != nil && a.lost():
			p.complain("HTTP/%d: list: sent, but %v", c.version, err)
			return
		case err != nil:
			return
		}
	}
}

// watch follows a watch to its end, which must be proper: whole events, no broken connection.
func (p *shutdownRun) watch(ctx context.Context, c *restful, began chan<- struct{}) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+p.path("configmaps")+"?watch=1", nil)
	if err != nil {
		p.complain("%v", err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	once := sync.OnceFunc(func() { began <- struct{}{} })
	defer once()
	resp, err := c.http.Do(req)
	if err != nil {
		p.complain("HTTP/%d: watch: %v", c.version, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		p.complain("HTTP/%d: watch: %s", c.version, resp.Status)
		return
	}
	events, n := bufio.NewReader(resp.Body), 0
	for ; ; n++ {
		line, err := events.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil {
			p.complain("HTTP/%d: the watch ended after %d events with %q and %v", c.version, n, line, err)
			return
		}
		var event metav1.WatchEvent
		if err := json.Unmarshal(line, &event); err != nil || event.Type != "ADDED" {
			p.complain("HTTP/%d: an event that is no object's creation: %.200s", c.version, line)
			return
		}
		once()
	}
	if n == 0 {
		p.complain("HTTP/%d: the watch ended without an event", c.version)
	}
}

// slow sends half of a request, which the server starts to serve. It sends the rest when the server
// accepts no new connections.
func (p *shutdownRun) slow(ctx context.Context, c *restful, began chan<- struct{}, leaving <-chan struct{}) {
	object := fmt.Sprintf("slow-%d", c.version)
	text, a := body("configmaps", object), &attempt{}
	out, in := io.Pipe()
	once := sync.OnceFunc(func() { began <- struct{}{} })
	defer once()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: once})
	go func() {
		_, _ = io.WriteString(in, text[:20])
		select {
		case <-leaving:
		case <-ctx.Done():
		}
		_, _ = io.WriteString(in, text[20:])
		_ = in.Close()
	}()
	code, answer, err := c.send(ctx, a, http.MethodPost, p.path("configmaps"), out, "Expect", "100-continue")
	if err != nil || code != http.StatusCreated {
		p.complain("HTTP/%d: a request that was being served when the server was told to end: %d %s %v", c.version, code, answer, err)
		return
	}
	p.done(p.path("configmaps") + "/" + object)
}

// account creates a service account that is allowed everything, and returns a token.
func (s *server) account(namespace string) string {
	s.t.Helper()
	c, err := s.client("admin")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx := s.t.Context()
	_, err = c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err == nil {
		_, err = c.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "writer"}}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "writer-" + namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "writer"}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	token, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "writer", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return token.Status.Token
}

// Under load over both HTTP versions, a server that is told to stop answers every request that it
// received, keeps every acknowledged write, and ends watches properly: with a whole event and no
// broken connection.
func TestAGracefulShutdownLosesNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	s := startServer(t, "--shutdown-idle-duration", idleTime.String())
	if err := s.define(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		p := &shutdownRun{s: s, namespace: fmt.Sprint("leaving-", i)}
		err := p.shutDown(t, s.account(p.namespace))
		if err == nil {
			s.start()
			err = p.check(t)
		}
		for _, wrong := range p.complaints() {
			t.Error(wrong)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("shutdown %d: %d objects were made", i, len(p.made))
	}
}

// shutDown starts the clients and stops the server. An error means that going on is useless.
func (p *shutdownRun) shutDown(t *testing.T, token string) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	var all []*restful
	open := func(version int, token string) *restful {
		c := p.s.restful(version, token)
		all = append(all, c)
		return c
	}
	const begun = 4 // a watch and a slow request of each version
	began, leaving := make(chan struct{}, begun), make(chan struct{})
	for version := 1; version <= 2; version++ {
		shared, slow := open(version, token), open(version, token)
		for i := range 4 {
			// Over HTTP/2 they share a connection; over HTTP/1.1 they take turns with several.
			c := shared
			if i == 0 {
				c = open(version, "")
			}
			clients.Go(func() { p.write(ctx, c, fmt.Sprintf("v%d-%d", version, i)) })
		}
		clients.Go(func() { p.read(ctx, shared) })
		clients.Go(func() { p.watch(ctx, shared, began) })
		clients.Go(func() { p.slow(ctx, slow, began, leaving) })
	}
	patience := time.After(time.Minute)
	for range begun {
		select {
		case <-began:
		case <-patience:
			return errors.New("watches and slow requests have not begun after a minute")
		}
	}
	time.Sleep(calm)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.s.end(syscall.SIGTERM)
	}()
	if err := p.s.refuses(time.Minute); err != nil {
		return err
	}
	close(leaving)
	clients.Wait()
	for { // no client sends requests any more, which the server cannot know
		for _, c := range all {
			c.http.CloseIdleConnections()
		}
		select {
		case <-ended:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// refuses waits until the server accepts no connections.
func (s *server) refuses(most time.Duration) error {
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", s.listen, 10*time.Second)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err == nil {
			_ = c.Close()
		}
	}
	return fmt.Errorf("the stopping server accepts connections after %v", most)
}

// check finds every acknowledged object.
func (p *shutdownRun) check(t *testing.T) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := p.s.restful(2, "")
	defer c.http.CloseIdleConnections()
	there := map[string]bool{}
	for _, resource := range []string{"configmaps", "widgets"} {
		code, answer, err := c.send(ctx, &attempt{}, http.MethodGet, p.path(resource), nil)
		var list metav1.PartialObjectMetadataList
		if err == nil {
			err = json.Unmarshal(answer, &list)
		}
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("list %s: %d %w", resource, code, err)
		}
		for i := range list.Items {
			there[p.path(resource)+"/"+list.Items[i].Name] = true
		}
	}
	if len(p.made) == 0 {
		return errors.New("no object was made")
	}
	for _, path := range p.made {
		if !there[path] {
			p.complain("%s was acknowledged and is not there", path)
		}
	}
	return nil
}

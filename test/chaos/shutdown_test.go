package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
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

// restful is one client: with connections of its own, of one version of HTTP, and as administrator or as a service account.
type restful struct {
	t       *testing.T
	http    *http.Client
	version int
	address string
	token   string
}

// restful makes a client. An administrator has no token.
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
	t := s.t.(*testing.T)
	t.Cleanup(transport.CloseIdleConnections)
	return &restful{t: t, http: &http.Client{Transport: transport}, version: version, address: "https://" + s.listen, token: token}
}

// attempt is how far a request got: the last time, if the HTTP library has tried it again.
type attempt struct {
	mu    sync.Mutex
	wrote bool          // something of it was sent
	idle  time.Duration // how long nothing had been asked on its connection
}

func (a *attempt) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { a.set(func() { a.wrote, a.idle = false, 0 }) },
		GotConn:      func(got httptrace.GotConnInfo) { a.set(func() { a.idle = got.IdleTime }) },
		WroteHeaders: func() { a.set(func() { a.wrote = true }) },
	})
}

func (a *attempt) set(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
}

// idleFor is half of what the server grants a connection on which nothing comes. One that was left alone for longer than that may be closed just when a request is
// sent on it, of which HTTP/1.1 has no way to tell.
const idleFor = 500 * time.Millisecond

// lost tells whether a request that failed had been sent to the server on a connection that it was to serve.
func (a *attempt) lost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wrote && a.idle < idleFor
}

// send makes one request and reads its answer to the end.
func (c *restful) send(ctx context.Context, a *attempt, method, path string, body io.Reader, header ...string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(a.trace(ctx), method, c.address+path, body)
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
	return resp.StatusCode, answer, err
}

// parting is what the clients of one shutdown have to say.
type parting struct {
	s         *server
	namespace string

	mu    sync.Mutex // guards what follows
	made  []string   // paths of objects whose creation was acknowledged
	wrong []string
}

func (p *parting) complain(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

func (p *parting) done(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = append(p.made, path)
}

func (p *parting) path(resource string) string {
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

// write creates objects, one after the other, until the server has gone.
func (p *parting) write(ctx context.Context, c *restful, name string) {
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
			return // there is no server any more
		}
	}
}

// read lists objects until the server has gone.
func (p *parting) read(ctx context.Context, c *restful) {
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

// watch follows a watch to its end, which is a proper one: whole events, and no broken connection.
func (p *parting) watch(ctx context.Context, c *restful, began chan<- struct{}) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+p.path("configmaps")+"?watch=1", nil)
	if err != nil {
		p.complain("%v", err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	began <- struct{}{}
	if err != nil {
		p.complain("HTTP/%d: watch: %v", c.version, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	events, err := io.ReadAll(resp.Body)
	if err != nil {
		p.complain("HTTP/%d: the watch ended with: %v", c.version, err)
	}
	for line := range bytes.Lines(events) {
		if !json.Valid(line) {
			p.complain("HTTP/%d: the watch ended with half an event: %.200s", c.version, line)
		}
	}
}

// slow sends half of a request, which the server has begun to serve then, and the rest when the server takes no new connections any more.
func (p *parting) slow(ctx context.Context, c *restful, began chan<- struct{}, leaving <-chan struct{}) {
	object := fmt.Sprintf("slow-%d", c.version)
	text, a := body("configmaps", object), &attempt{}
	out, in := io.Pipe()
	once := sync.OnceFunc(func() { began <- struct{}{} })
	defer once()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: once})
	go func() {
		_, _ = io.WriteString(in, text[:20])
		<-leaving
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

// account makes a service account that may do everything, and gives a token of its.
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

// A server that is told to end, under load over both versions of HTTP, answers every request that it was sent, keeps what it has acknowledged, and ends watches
// as they end.
func TestAServerThatIsToldToEndLosesNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	s := startServer(t)
	if err := s.define(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		p := &parting{s: s, namespace: fmt.Sprint("leaving-", i)}
		token := s.account(p.namespace)
		p.leave(t, token)
		s.start()
		p.check(t)
		for _, wrong := range p.wrong {
			t.Error(wrong)
		}
		t.Logf("shutdown %d: %d objects were made", i, len(p.made))
	}
}

// leave sets the clients to work and ends the server among them.
func (p *parting) leave(t *testing.T, token string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	began, leaving := make(chan struct{}), make(chan struct{})
	begun := 0
	for version := 1; version <= 2; version++ {
		shared := p.s.restful(version, token)
		for i := range 4 {
			c := shared // over HTTP/2 they share a connection, over HTTP/1.1 they take turns with several
			if i == 0 {
				c = p.s.restful(version, "")
			}
			clients.Go(func() { p.write(ctx, c, fmt.Sprintf("v%d-%d", version, i)) })
		}
		clients.Go(func() { p.read(ctx, shared) })
		clients.Go(func() { p.watch(ctx, shared, began) })
		clients.Go(func() { p.slow(ctx, p.s.restful(version, token), began, leaving) })
		begun += 2
	}
	for range begun {
		<-began
	}
	time.Sleep(calm)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.s.end(syscall.SIGTERM)
	}()
	for { // until it takes no connections any more
		a := &attempt{}
		_, _, err := p.s.restful(1, "").send(ctx, a, http.MethodGet, "/livez", nil)
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	close(leaving)
	clients.Wait()
	<-ended
}

// check finds every object that was acknowledged.
func (p *parting) check(t *testing.T) {
	c := p.s.restful(2, "")
	there := map[string]bool{}
	for _, resource := range []string{"configmaps", "widgets"} {
		code, answer, err := c.send(t.Context(), &attempt{}, http.MethodGet, p.path(resource), nil)
		var list metav1.PartialObjectMetadataList
		if err == nil {
			err = json.Unmarshal(answer, &list)
		}
		if err != nil || code != http.StatusOK {
			t.Fatalf("list %s: %d %v", resource, code, err)
		}
		for i := range list.Items {
			there[p.path(resource)+"/"+list.Items[i].Name] = true
		}
	}
	for _, path := range p.made {
		if !there[path] {
			p.complain("%s was acknowledged and is not there", path)
		}
	}
}

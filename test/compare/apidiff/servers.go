package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// server is one of the two running API servers, with a client of its administrator.
type server struct {
	name   string
	base   string
	client *http.Client
	token  string
	stop   func()
}

// pair is upstream's server and ours, in this order.
type pair [2]*server

type starter func(ctx context.Context, o *options, dir string) (*server, error)

// serviceRange is the same on both sides. Addresses allocated from it are removed from the answers.
const serviceRange = "10.47.0.0/16"

func startUpstream(ctx context.Context, o *options, dir string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "sa.key")
	if err := writeKey(key); err != nil {
		return nil, err
	}
	const token = "apidiff"
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(token+`,kubernetes-admin,,"system:masters"`+"\n"), 0o600); err != nil {
		return nil, err
	}
	store, peer, port := freePort(), freePort(), freePort()
	etcd, err := launch(dir, "etcd", filepath.Join(o.upstream, "etcd"), "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", local(store), "--advertise-client-urls", local(store),
		"--listen-peer-urls", local(peer), "--initial-advertise-peer-urls", local(peer), "--initial-cluster", "default="+local(peer))
	if err != nil {
		return nil, err
	}
	api, err := launch(dir, "kube-apiserver", filepath.Join(o.upstream, "kube-apiserver"), "--etcd-servers", local(store), "--secure-port", fmt.Sprint(port),
		"--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--cert-dir", dir, "--service-cluster-ip-range", serviceRange, "--token-auth-file", tokens,
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local", "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--allow-privileged", "--authorization-mode", "Node,RBAC", "--endpoint-reconciler-type", "none")
	if err != nil {
		etcd()
		return nil, err
	}
	s := &server{
		name: "upstream", base: fmt.Sprintf("https://127.0.0.1:%d", port), token: token,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 16}},
		stop:   func() { api(); etcd() },
	}
	return s, s.wait(ctx)
}

func startKnarr(ctx context.Context, o *options, dir string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	port := freePort()
	stop, err := launch(dir, "knarr", o.knarr, "apiserver", "--data-dir", filepath.Join(dir, "data"), "--run-dir", filepath.Join(dir, "run"),
		"--listen", fmt.Sprintf("127.0.0.1:%d", port), "--advertise-address", "127.0.0.1", "--service-cidr", serviceRange)
	if err != nil {
		return nil, err
	}
	s := &server{name: "knarr", base: fmt.Sprintf("https://127.0.0.1:%d", port), stop: stop}
	kubeconfig := filepath.Join(dir, "data", "kubeconfig")
	if err := until(ctx, "knarr's kubeconfig", func() bool {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return false
		}
		s.client, err = rest.HTTPClientFor(config)
		return err == nil
	}); err != nil {
		stop()
		return nil, err
	}
	return s, s.wait(ctx)
}

// wait returns when the server is ready. If it does not become ready, wait stops it.
func (s *server) wait(ctx context.Context) error {
	err := until(ctx, s.name+" ready", func() bool {
		a, err := s.send(ctx, request{method: http.MethodGet, path: "/readyz"})
		return err == nil && a.code == http.StatusOK
	})
	if err != nil {
		s.stop()
	}
	return err
}

// request is sent to both servers. The body is each server's own if it contains a revision or uid.
type request struct {
	method, path string
	accept       string
	contentType  string
	body         []byte
	brief        bool // of a successful answer, compare only the encoding
	exactAccept  bool // send accept as it is, even if it is empty
	header       map[string]string
}

// answer is a server's answer: object if the body is JSON, else text.
type answer struct {
	code     int
	kind     string // media type
	warnings []string
	object   any
	text     string
	watched  bool // object is a list of events
	late     bool // a watch whose time was over before it began
}

func (s *server) send(ctx context.Context, r request) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 120*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, s.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	req.Header.Set("Accept", "application/json")
	if r.accept != "" || r.exactAccept {
		req.Header.Set("Accept", r.accept)
	}
	req.Header.Set("User-Agent", "apidiff/1")
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	resp, err := s.client.Do(req)
	if errors.Is(err, io.EOF) {
		return &answer{text: "the connection was closed"}, nil // its handler panicked
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s %s: %w", s.name, r.method, r.path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if errors.Is(err, context.DeadlineExceeded) {
		// A watch by accident.
		return &answer{code: resp.StatusCode, text: "an answer without an end"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s %s: %w", s.name, r.method, r.path, err)
	}
	a := &answer{code: resp.StatusCode, warnings: resp.Header.Values("Warning"), text: string(data)}
	if r.brief && a.code < 300 {
		a.text = ""
		data = nil
	}
	a.kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch {
	case a.kind == "application/json" && a.code == http.StatusOK && strings.Contains(r.path, "watch"):
		a.object = documentsIn(data)
		a.watched, a.late = true, strings.Contains(r.path, "timeoutSeconds=-1")
	case json.Valid(data):
		a.object = decode(data)
	case strings.HasPrefix(a.kind, mediaProtobuf) && bytes.HasPrefix(data, []byte("k8s\x00")):
		a.object = fromWire(data)
	case a.kind == "application/json":
		a.object = documentsIn(data)
	case a.kind == "application/yaml":
		if text, err := yaml.YAMLToJSON(data); err == nil {
			a.object = decode(text)
		}
	}
	return a, nil
}

// decode decodes JSON and keeps numbers as they are written.
func decode(data []byte) any {
	var v any
	if newDecoder(data).Decode(&v) != nil {
		return nil
	}
	return v
}

func newDecoder(data []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d
}

func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// launch starts a child process, whose output goes to a file. It ends with this process.
func launch(dir, name, path string, args ...string) (stop func(), err error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	// Upstream would use a proxy for requests to nodes and pods.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasSuffix(strings.ToLower(name), "_proxy")
	})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(3 * time.Second): // none of its data is needed
			_ = cmd.Process.Kill()
			<-done
		}
	}, nil
}

func local(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func until(ctx context.Context, what string, done func() bool) error {
	deadline := time.Now().Add(240 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not in time", what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

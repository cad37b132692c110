package run

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

const (
	groupServers = "system:bootstrappers:knarr:servers"
	groupNodes   = "system:bootstrappers:kubeadm:default-node-token"
)

// patience limits waits for something that should happen.
const patience = 2 * time.Minute

// testServer is a control plane in this process.
type testServer struct {
	cfg  *config.Config
	stop context.CancelFunc
	done chan error // the result of Server
	err  error      // once done is closed
}

// newConfig returns the configuration of a server on free ports of loopback.
func newConfig(t *testing.T, name string) *config.Config {
	t.Helper()
	cfg := config.Default()
	top, err := os.MkdirTemp("", "knarr-") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	cfg.DataDir, cfg.RunDir, cfg.NodeName, cfg.AdvertiseAddress = filepath.Join(top, "data"), filepath.Join(top, "run"), name, "127.0.0.1"
	cfg.Listen, cfg.PeerListen = nettest.FreeAddress(t), nettest.FreeAddress(t)
	if err := cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	return &cfg
}

// launch starts a server without waiting for it.
func launch(t *testing.T, cfg *config.Config) (s *testServer, ready chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, ready = &testServer{cfg: cfg, stop: cancel, done: make(chan error)}, make(chan struct{})
	own := *cfg
	own.APIServer.ShutdownIdle.Duration = 0
	go func() {
		defer close(s.done)
		s.err = Server(ctx, Params{Config: &own, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("server", cfg.NodeName), Ready: func() { close(ready) }})
	}()
	t.Cleanup(func() { cancel(); <-s.done })
	return s, ready
}

// startServer starts a server and waits until it is ready.
func startServer(t *testing.T, cfg *config.Config) *testServer {
	t.Helper()
	s, ready := launch(t, cfg)
	select {
	case <-ready:
	case <-s.done:
		t.Fatalf("server %s: %v", cfg.NodeName, s.err)
	case <-time.After(patience):
		t.Fatalf("server %s is not ready", cfg.NodeName)
	}
	return s
}

// refused starts a server and returns the error with which it ends.
func refused(t *testing.T, cfg *config.Config) error {
	t.Helper()
	s, ready := launch(t, cfg)
	select {
	case <-ready:
		t.Fatalf("server %s has started", cfg.NodeName)
	case <-s.done:
	case <-time.After(patience):
		t.Fatalf("server %s neither starts nor ends", cfg.NodeName)
	}
	return s.err
}

// end stops a server as a signal does.
func (s *testServer) end(t *testing.T) {
	t.Helper()
	s.stop()
	select {
	case <-s.done:
	case <-time.After(patience):
		t.Fatalf("server %s does not end", s.cfg.NodeName)
	}
	if s.err != nil {
		t.Fatalf("server %s: %v", s.cfg.NodeName, s.err)
	}
}

func (s *testServer) rest(t *testing.T) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", s.cfg.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	return c
}

func (s *testServer) client(t *testing.T) client.Interface {
	t.Helper()
	c, err := client.Remote(s.rest(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// token writes a join token of the group to a file, and returns its path.
func (s *testServer) token(t *testing.T, group string) string {
	t.Helper()
	id, secret := strings.ToLower(rand.Text()[:6]), strings.ToLower(rand.Text()[:16])
	_, err := client.Create(t.Context(), s.client(t), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
			"auth-extra-groups": group, "expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pki.ParseAuthority(read(t, s.cfg.Path("pki", "ca.crt")), read(t, s.cfg.Path("pki", "ca.key")))
	if err != nil {
		t.Fatal(err)
	}
	return tokenFile(t, id+"."+secret+"."+strings.TrimPrefix(keys.Hash(), "sha256:"))
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// joining returns the configuration of a further server.
func (s *testServer) joining(t *testing.T, name string) *config.Config {
	t.Helper()
	cfg := newConfig(t, name)
	cfg.Join, cfg.TokenFile = "https://"+s.cfg.Listen, s.token(t, groupServers)
	return cfg
}

// members asks a server for the members.
func (s *testServer) members(t *testing.T) []member.Member {
	t.Helper()
	var list member.List
	if err := s.ask(t, http.MethodGet, member.Path, nil, &list); err != nil {
		t.Fatal(err)
	}
	return list.Members
}

func (s *testServer) ask(t *testing.T, method, path string, body, into any) error {
	t.Helper()
	c, err := rest.HTTPClientFor(s.rest(t))
	if err != nil {
		t.Fatal(err)
	}
	return member.Ask(t.Context(), c, method, "https://"+s.cfg.Listen+path, body, into)
}

func (s *testServer) remove(t *testing.T, name string) error {
	t.Helper()
	var list member.List
	return s.ask(t, http.MethodPost, member.RemovePath, member.Request{Name: name}, &list)
}

// put writes a ConfigMap through the server, and tries again as clients do.
func (s *testServer) put(t *testing.T, name string) {
	t.Helper()
	c := s.client(t)
	eventually(t, "write "+name, func() error {
		_, err := client.Create(t.Context(), c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// sees checks that the server reads a ConfigMap at once.
func (s *testServer) sees(t *testing.T, name string) {
	t.Helper()
	if _, err := client.Get[*corev1.ConfigMap](t.Context(), s.client(t), "default", name); err != nil {
		t.Errorf("server %s reads %s: %v", s.cfg.NodeName, name, err)
	}
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func TestThreeServersAreOneCluster(t *testing.T) {
	a := startServer(t, newConfig(t, "a"))
	a.put(t, "before")
	b := startServer(t, a.joining(t, "b"))
	third := b.joining(t, "c")
	third.Join = "https://" + nettest.FreeAddress(t) + "," + third.Join // one of them answers
	c := startServer(t, third)
	all := []*testServer{a, b, c}
	for i, s := range all {
		s.sees(t, "before")
		name := fmt.Sprint("by-", i)
		s.put(t, name)
		for _, other := range all {
			other.sees(t, name)
		}
	}
	members := a.members(t)
	leaders := 0
	for i, m := range members {
		if m.Name != string(rune('a'+i)) || m.Learner || m.Health != member.Healthy || m.Size == 0 || m.Server != "https://"+all[i].cfg.Listen {
			t.Errorf("member %+v", m)
		}
		if m.Leader {
			leaders++
		}
	}
	if len(members) != 3 || leaders != 1 {
		t.Errorf("%d members, %d leaders", len(members), leaders)
	}
	if string(read(t, a.cfg.Path("pki", "ca.key"))) != string(read(t, c.cfg.Path("pki", "ca.key"))) {
		t.Error("the servers have different CAs")
	}
	if string(read(t, a.cfg.Path("pki", "apiserver.key"))) == string(read(t, c.cfg.Path("pki", "apiserver.key"))) {
		t.Error("two servers have the same certificate")
	}
	// Each stops in turn. The others go on, and it comes back without a token.
	for i, s := range all {
		s.end(t)
		other := all[(i+1)%3]
		name := fmt.Sprint("without-", i)
		other.put(t, name)
		all[(i+2)%3].sees(t, name)
		s.cfg.Join, s.cfg.TokenFile = "", ""
		all[i] = startServer(t, s.cfg)
		all[i].sees(t, name)
	}
}

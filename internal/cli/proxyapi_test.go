package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/knarr-project/knarr/internal/auth/pki"
)

// api starts an API server with a certificate of the cluster. It answers with its name.
func api(t *testing.T, keys *pki.PKI, name string) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz":
		case strings.HasPrefix(r.URL.Path, "/apis/discovery.k8s.io/"):
			http.Error(w, "forbidden", http.StatusForbidden)
		default:
			fmt.Fprint(w, name, " ", len(r.TLS.PeerCertificates))
		}
	}))
	s.TLS, s.EnableHTTP2 = keys.ServerTLS(), true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func TestProxyAPILeadsToAServerThatWorks(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	keys, err := pki.Open(pki.Config{Dir: filepath.Join(dir, "pki")})
	if err != nil {
		t.Fatal(err)
	}
	one, two := api(t, keys, "one"), api(t, keys, "two")
	kubeconfig, out := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "out", "config")
	if err := keys.WriteKubeconfig(kubeconfig, one.URL, keys.Admin); err != nil {
		t.Fatal(err)
	}
	p := &proxyAPI{listen: "127.0.0.1:0", kubeconfig: kubeconfig, out: out, further: []string{two.URL}}
	ctx, cancel := context.WithCancel(t.Context())
	said, done := make(chan string, 2), make(chan error, 1)
	go func() {
		done <- p.run(ctx, slog.New(slog.NewTextHandler(t.Output(), nil)), func(line string) { said <- line })
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-said:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", out)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Timeout = 10 * time.Second
	expect := func(want string) {
		t.Helper()
		last := ""
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			response, err := c.Get(config.Host + "/version")
			if err != nil {
				last = err.Error()
				continue
			}
			text := make([]byte, 100)
			n, _ := response.Body.Read(text)
			_ = response.Body.Close()
			if last = string(text[:n]); last == want {
				return
			}
		}
		t.Fatalf("got %q, want %q", last, want)
	}
	expect("one 1") // with the client's certificate
	one.CloseClientConnections()
	one.Close()
	expect("two 1")
}

func TestProxyAPIRefusesWhatItCannotForward(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	write := func(server string) string {
		path := filepath.Join(t.TempDir(), "config")
		data, err := pki.Kubeconfig(server, nil, "me", &clientcmdapi.AuthInfo{Token: "t"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tt := range map[string]struct {
		p    proxyAPI
		want string
	}{
		"no address":            {proxyAPI{listen: "here", kubeconfig: write("https://a:1")}, "--listen"},
		"no encryption":         {proxyAPI{listen: "127.0.0.1:0", kubeconfig: write("http://a:1")}, "begins with https"},
		"a path":                {proxyAPI{listen: "127.0.0.1:0", kubeconfig: write("https://a:1/k8s/c")}, "a path"},
		"itself":                {proxyAPI{listen: "127.0.0.1:7445", kubeconfig: write("https://127.0.0.1:7445")}, "--server"},
		"another context":       {proxyAPI{listen: "127.0.0.1:0", kubeconfig: write("https://a:1"), context: "x"}, `no context "x"`},
		"a server without a CA": {proxyAPI{listen: "127.0.0.1:0", kubeconfig: write("https://a:1")}, "CA"},
		"an unusable server":    {proxyAPI{listen: "127.0.0.1:0", kubeconfig: write("https://a:1"), further: []string{"http://b"}}, "--server"},
		"a missing kubeconfig":  {proxyAPI{listen: "127.0.0.1:0", kubeconfig: "/no/such/file"}, "no such file"},
	} {
		err := tt.p.run(t.Context(), slog.New(slog.DiscardHandler), func(string) {})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package cli

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/servers"
)

// twoServers are the servers of a cluster: one of this machine, and another one.
func twoServers(t *testing.T) (e *explainer, own, other *httptest.Server, seen *[2]atomic.Int64, config *rest.Config) {
	t.Helper()
	t.Setenv("KUBECONFIG", "")
	seen = new([2]atomic.Int64)
	serve := func(i int) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				seen[i].Add(1)
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	own, other = serve(0), serve(1)
	// Both servers have the same certificate.
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate().Raw})
	r := stopped(t, func(r *clusters.Record) { r.Listen = own.Listener.Addr().String() })
	if err := os.MkdirAll(filepath.Join(r.DataDir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.DataDir, "pki", "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	list := fmt.Sprintf(`{"servers":[{"address":%q,"living":true},{"address":%q,"living":true}]}`, own.Listener.Addr(), other.Listener.Addr())
	if err := os.WriteFile(filepath.Join(r.DataDir, servers.File), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	e = &explainer{here: clusters.Registry{Dirs: []string{t.TempDir()}, DefaultDataDir: r.DataDir}, command: "get"}
	return e, own, other, seen, &rest.Config{Host: own.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func TestKubectlUsesTheServerOfThisMachine(t *testing.T) {
	e, _, _, seen, config := twoServers(t)
	if message, err := ask(t, e, config); message != "" || err != nil || seen[0].Load() != 1 || seen[1].Load() != 0 {
		t.Errorf("%q, %v; requests: %d here, %d elsewhere", message, err, seen[0].Load(), seen[1].Load())
	}
}

func TestKubectlUsesAnotherServerIfThisMachinesDoesNotServe(t *testing.T) {
	e, own, other, seen, config := twoServers(t)
	var remarks []string
	e.servers.remark = func(message string) { remarks = append(remarks, message) }
	own.Close()
	for range 2 {
		if message, err := ask(t, e, config); message != "" || err != nil {
			t.Errorf("%q, %v", message, err)
		}
	}
	if seen[1].Load() != 2 || len(remarks) != 1 || !strings.Contains(remarks[0], "using "+other.URL) {
		t.Errorf("%d requests, remarks %q", seen[1].Load(), remarks)
	}
}

func TestKubectlUsesTheServerOfAFlag(t *testing.T) {
	e, own, _, seen, config := twoServers(t)
	e.server = own.URL
	own.Close()
	if _, err := ask(t, e, config); err == nil || seen[1].Load() != 0 {
		t.Errorf("%v; %d requests to another server", err, seen[1].Load())
	}
}

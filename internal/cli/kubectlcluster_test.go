package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/clusters"
)

func TestKubectlAcceptsALeadingDataDir(t *testing.T) {
	for _, tt := range []struct {
		args, rest []string
		dir        string
		fails      bool
	}{
		{[]string{"get", "pods"}, []string{"get", "pods"}, "", false},
		{[]string{"--data-dir", "d", "get", "pods"}, []string{"get", "pods"}, "d", false},
		{[]string{"--data-dir=d", "get"}, []string{"get"}, "d", false},
		{[]string{"get", "--data-dir=d"}, []string{"get", "--data-dir=d"}, "", false},
		{[]string{"--data-dir"}, nil, "", true},
		{nil, nil, "", false},
	} {
		rest, dir, err := kubectlCluster(tt.args)
		if !slices.Equal(rest, tt.rest) || dir != tt.dir || (err != nil) != tt.fails {
			t.Errorf("%q: %q, %q, %v", tt.args, rest, dir, err)
		}
	}
}

// ask sends a request as kubectl does, and returns the message for the user.
func ask(t *testing.T, e *explainer, c *rest.Config) (message string, err error) {
	t.Helper()
	e.stop = func(text string) { message = text }
	client, err := rest.HTTPClientFor(e.wrap(rest.CopyConfig(c)))
	if err != nil {
		t.Fatal(err)
	}
	url := c.Host
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	request, err := http.NewRequest(http.MethodGet, url+"/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	return message, err
}

func TestKubectlExplainsThatThereIsNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	here := clusters.Registry{Dirs: []string{filepath.Join(t.TempDir(), "clusters")}, DefaultDataDir: filepath.Join(t.TempDir(), "none")}
	nowhere := &rest.Config{Host: "http://localhost:8080", Dial: refuse}
	message, _ := ask(t, &explainer{here: here, command: "get"}, nowhere)
	if !strings.Contains(message, "`knarr up` starts one") {
		t.Errorf("message is %q", message)
	}
	here.DefaultDataDir = stopped(t, nil).DataDir
	if message, _ = ask(t, &explainer{here: here, command: "get"}, nowhere); !strings.Contains(message, "knows harbour (stopped)") {
		t.Errorf("message is %q", message)
	}
	if message, err := ask(t, &explainer{here: here, command: "version"}, nowhere); message != "" || err == nil || !strings.Contains(err.Error(), "no cluster") {
		t.Errorf("version: message is %q, error %v", message, err)
	}
	if message, _ := ask(t, &explainer{here: here, command: "get", server: "http://localhost:8080"}, nowhere); message != "" {
		t.Errorf("a requested server: %q", message)
	}
	t.Setenv("KUBECONFIG", "/no/such/file")
	if message, _ := ask(t, &explainer{here: here, command: "get"}, nowhere); !strings.Contains(message, "KUBECONFIG names /no/such/file") {
		t.Errorf("message is %q", message)
	}
}

func TestKubectlExplainsThatItsClusterDoesNotRun(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close()
	address := server.Listener.Addr().String()
	r := stopped(t, func(r *clusters.Record) { r.Listen = address })
	if err := os.MkdirAll(filepath.Join(r.DataDir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.DataDir, "pki", "ca.crt"), []byte("CA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &explainer{here: clusters.Registry{Dirs: []string{t.TempDir()}, DefaultDataDir: r.DataDir}, command: "get"}
	text := e.explain("https://"+address, []byte("CA"), dialError(t, address))
	if !strings.Contains(text, "harbour does not run") || !strings.Contains(text, "knarr up --data-dir "+r.DataDir) {
		t.Errorf("message is %q", text)
	}
	if text := e.explain("https://"+address, []byte("another CA"), dialError(t, address)); text != "" {
		t.Errorf("a cluster of others at that address: %q", text)
	}
	if text := e.explain("https://192.0.2.1:6443", []byte("CA"), dialError(t, address)); text != "" {
		t.Errorf("another address: %q", text)
	}
}

func TestErrorsOfEstablishedConnectionsAreNotExplained(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	e := &explainer{here: clusters.Registry{Dirs: []string{t.TempDir()}, DefaultDataDir: t.TempDir()}, command: "get"}
	if message, err := ask(t, e, &rest.Config{Host: server.URL}); message != "" || err != nil {
		t.Fatalf("%q, %v", message, err)
	}
	if message, _ := ask(t, e, &rest.Config{Host: "http://localhost:8080", Dial: refuse}); message != "" {
		t.Errorf("message is %q", message)
	}
}

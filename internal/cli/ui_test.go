package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/knarr-project/knarr/internal/auth/session"
)

func TestUIPrintsALink(t *testing.T) {
	for name, tt := range map[string]struct {
		status      int
		want, fails string
	}{
		"a link":         {http.StatusOK, "/ui/#code=abc\nuser alice;", ""},
		"a refusal":      {http.StatusForbidden, "", session.ErrProgram.Error()},
		"another server": {http.StatusNotFound, "", "serves no page"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != session.LinksPath || r.Header.Get("Authorization") != "Bearer t" {
					t.Errorf("%s %s %s", r.Method, r.URL.Path, r.Header)
				}
				if w.WriteHeader(tt.status); tt.status != http.StatusOK {
					_, _ = w.Write([]byte(session.ErrProgram.Error()))
					return
				}
				_ = json.NewEncoder(w).Encode(session.Link{Path: "/ui/#code=abc", User: "alice", Expires: time.Now()})
			}))
			defer server.Close()
			config := clientcmdapi.NewConfig()
			config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, InsecureSkipTLSVerify: true}
			config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "t"}
			config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
			config.CurrentContext = "x"
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := clientcmd.WriteToFile(*config, path); err != nil {
				t.Fatal(err)
			}
			root := Root()
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetArgs([]string{"ui", "--kubeconfig", path})
			err := root.ExecuteContext(t.Context())
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("the error is %v, want %s", err, tt.fails)
				}
				return
			}
			if err != nil || !strings.HasPrefix(out.String(), server.URL+tt.want) || strings.Count(out.String(), ":") < 33 {
				t.Errorf("%v, output:\n%s", err, out.String())
			}
		})
	}
}

func TestUINamesABadServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: c, cluster: {server: http://10.0.0.1:80}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	root := Root()
	root.SetArgs([]string{"ui", "--kubeconfig", path})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "http://10.0.0.1:80") {
		t.Error(err)
	}
}

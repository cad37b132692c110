package run

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/client"
)

// The name appears in audit logs; its part before the slash is the field manager of the component's
// writes.
func TestAComponentAloneHasUpstreamsUserAgent(t *testing.T) {
	var agent string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent = r.UserAgent()
		http.NotFound(w, r)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters":[{"name":"a","cluster":{"server":"` + server.URL + `"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, component := range []string{"kubelet", "kube-proxy", "kube-scheduler"} {
		config, err := kubeconfig(path, component)
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.Remote(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Discovery(t.Context()); err == nil || !strings.HasPrefix(agent, component+"/") {
			t.Errorf("%s is known as %q: %v", component, agent, err)
		}
	}
}

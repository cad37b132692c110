package run

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/knarr-project/knarr/internal/member"
)

func TestAServerLeavesTheOthersBeforeAPurge(t *testing.T) {
	self, other := member.Member{ID: "a1", Name: "a", Self: true}, member.Member{ID: "b2", Name: "b"}
	for name, c := range map[string]struct {
		list    member.List
		refused string
		left    []string
		removed string
		want    string
	}{
		"one of two":       {member.List{Members: []member.Member{self, other}}, "", []string{"b"}, "a1", ""},
		"the only one":     {member.List{Members: []member.Member{self}}, "", nil, "", ""},
		"refused":          {member.List{Members: []member.Member{self, other}}, "a majority must answer", nil, "", "a majority must answer"},
		"without majority": {member.List{Members: []member.Member{self, other}, Outdated: "no leader"}, "", nil, "", "no leader"},
		"a stranger":       {member.List{Members: []member.Member{other}}, "", nil, "", "does not find itself"},
	} {
		t.Run(name, func(t *testing.T) {
			removed := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					if c.refused != "" {
						http.Error(w, c.refused, http.StatusConflict)
						return
					}
					var in member.Request
					_ = json.NewDecoder(r.Body).Decode(&in)
					removed = in.Name
					c.list.Members = slices.DeleteFunc(c.list.Members, func(m member.Member) bool { return m.ID == in.Name })
				}
				_ = json.NewEncoder(w).Encode(c.list)
			}))
			defer server.Close()
			access := clientcmdapi.NewConfig()
			access.Clusters["c"], access.Contexts["c"], access.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
				t.Fatal(err)
			}
			left, err := leave(t.Context(), kubeconfig)
			if !slices.Equal(left, c.left) || removed != c.removed || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("left %q, removed %q, %v", left, removed, err)
			}
		})
	}
}

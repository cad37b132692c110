package apiserver

import (
	"net/http"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
)

// remarkingAuthenticator authenticates every request and adds remarks.
type remarkingAuthenticator struct{}

func (remarkingAuthenticator) Authenticate(*http.Request) (auth.User, bool, error) {
	return auth.User{Name: "robot", Remarks: &auth.Remarks{Warnings: []string{"use another token"}, Annotations: map[string]string{"authentication.k8s.io/legacy-token": "robot"}}}, true, nil
}

func TestAuthenticationWarningsAndAnnotationsAreSent(t *testing.T) {
	s, sink := recorded(t)
	s.Use(Security{Authenticator: remarkingAuthenticator{}, Authorizer: allowAll{}})
	cfg, _ := overHTTP(t, s, "application/json")
	resp, _ := fetch(t, cfg.Host+"/api/v1/namespaces/default/configmaps/none")
	if got := resp.Header.Get("Warning"); got != `299 - "use another token"` {
		t.Errorf("the warning is %q", got)
	}
	if list := sink.take(); list[len(list)-1].Annotations["authentication.k8s.io/legacy-token"] != "robot" {
		t.Errorf("the annotations are %v", list[len(list)-1].Annotations)
	}
}

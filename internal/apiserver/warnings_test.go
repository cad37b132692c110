package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/rest"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
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

func TestAuthenticationWarningsStayBesideOthers(t *testing.T) {
	w := httptest.NewRecorder()
	said := &telemetry.ResponseRecorder{ResponseWriter: w}
	said.AddRemarks(&auth.Remarks{Warnings: []string{"a token that is \"old\"", "twice"}})
	c := &rest.Call{W: said}
	for _, text := range []string{"a field", "twice", "another"} {
		c.WarnHeader(text)
	}
	want := []string{`299 - "a token that is \"old\""`, `299 - "twice"`, `299 - "a field"`, `299 - "another"`}
	if got := w.Header().Values("Warning"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

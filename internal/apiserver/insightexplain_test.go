package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/insight/questions"
	"github.com/knarr-project/knarr/internal/insight/relations"
	"github.com/knarr-project/knarr/internal/insight/why"
)

// claimsOnly lets the user "narrow" read claims and the paths of insight, and others everything.
type claimsOnly struct{}

func (claimsOnly) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.User.Name != "narrow" || a.Path != "" || a.Resource == "persistentvolumeclaims" {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "", nil
}

func TestTheServerExplainsWithTheRightsOfTheCaller(t *testing.T) {
	s := newTestServer(t, func(c *Config) {
		c.Security.Authenticator = userHeader{}
		c.Security.Authorizer = claimsOnly{}
		c.Answerers = questions.All()
	})
	claim := `{"metadata":{"name":"data"},"spec":{"storageClassName":"none","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`
	if code, _, body := do(t, s, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim, "Test-User", "wide"); code != http.StatusCreated {
		t.Fatal(code, body)
	}
	const question = "/insight/v1/why?resource=persistentvolumeclaims&namespace=default&name=data"
	ask := func(user, path string, into any) {
		t.Helper()
		code, header, body := do(t, s, "GET", path, "", "Test-User", user)
		if code != http.StatusOK || header.Get("Content-Type") != "application/json" {
			t.Fatal(path, code, header, body)
		}
		if err := json.Unmarshal([]byte(body), into); err != nil {
			t.Fatal(err)
		}
	}
	var wide, narrow why.Answer
	ask("wide", question, &wide)
	if len(wide.Roots) == 0 || len(wide.Unread) != 0 {
		t.Errorf("%+v", wide)
	}
	ask("narrow", question, &narrow)
	if len(narrow.Unread) == 0 || !strings.Contains(narrow.Unread[0], "forbidden") {
		t.Errorf("a user without rights reads: %+v", narrow)
	}
	var graph relations.Graph
	ask("narrow", "/insight/v1/map?namespace=default", &graph)
	if len(graph.Unread) == 0 {
		t.Errorf("a user without rights gets a map: %+v", graph)
	}
	if code, header, body := do(t, s, "GET", "/insight/v1/map?output=svg", "", "Test-User", "wide"); code != http.StatusOK || header.Get("Content-Type") != "image/svg+xml" ||
		!strings.HasPrefix(body, "<svg") {
		t.Error(code, header, body)
	}
	for path, want := range map[string]int{
		"/insight/v1/why?resource=persistentvolumeclaims&namespace=default&name=no": http.StatusNotFound,
		"/insight/v1/why?resource=persistentvolumeclaims&name=data":                 http.StatusBadRequest,
		"/insight/v1/why?resource=pods&namespace=default":                           http.StatusBadRequest,
		"/insight/v1/why?group=example.com&resource=odd&namespace=default&name=x":   http.StatusBadRequest,
		"/insight/v1/map?output=png":                                                http.StatusBadRequest,
		"/insight/v1/whatever":                                                      http.StatusServiceUnavailable,
	} {
		if code, _, body := do(t, s, "GET", path, "", "Test-User", "wide"); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	if code, _, _ := do(t, s, "POST", question, "", "Test-User", "wide"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
}

func TestOneUserDoesNotTakeAllQuestions(t *testing.T) {
	var q questionCount
	var ends []func()
	for range maxQuestionsEach {
		end, ok := q.begin("a")
		if !ok {
			t.Fatal("a question within the limit is refused")
		}
		ends = append(ends, end)
	}
	if _, ok := q.begin("a"); ok {
		t.Error("a user has more questions than allowed")
	}
	end, ok := q.begin("b")
	if !ok {
		t.Fatal("another user is refused")
	}
	end()
	for _, end := range ends {
		end()
	}
	if q.running != 0 || len(q.by) != 0 {
		t.Errorf("%+v", &q)
	}
}

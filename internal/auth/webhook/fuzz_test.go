package webhook

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
)

// fixed is a webhook that answers every request with the same bytes.
type fixed []byte

func (f fixed) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(f)), Header: http.Header{}}, nil
}

// FuzzAnswers checks that only an answer that says so authenticates a user or allows a request.
func FuzzAnswers(f *testing.F) {
	for _, body := range []string{`{"status":{"allowed":true}}`, `{"status":{"allowed":true,"denied":true}}`, `{"status":{"authenticated":true,"user":{"username":"u","groups":["g"],"extra":{"a":["b"]}},"audiences":["a"]}}`,
		`{"status":{"authenticated":true,"user":{}}}`, `{"spec":{"user":"root"},"status":{"denied":true,"reason":"x"}}`, `[]`, `null`, `{"status":null}`, `{"STATUS":{"Allowed":true}}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := &server{url: "http://webhook", http: &http.Client{Transport: fixed(body)}, timeout: time.Minute}
		says := func(word string) bool {
			return bytes.Contains(bytes.ToLower(body), []byte(word)) || bytes.ContainsRune(body, '\\')
		} // an escape may spell the word; its letters have no case folding beyond ASCII
		z := &Authorizer{name: "w", server: s, failure: auth.Deny, now: time.Now, metrics: NewMetrics()}
		if decision, _, err := z.Authorize(t.Context(), auth.Attributes{User: auth.User{Name: "u"}, Verb: "get"}); decision == auth.Allow && (err != nil || !says("allowed")) {
			t.Errorf("%q allows (%v)", body, err)
		}
		tokens := &Tokens{server: s, now: time.Now}
		_, accepted, ok, err := tokens.AuthenticateToken(t.Context(), "t", []string{"a"})
		if ok && (err != nil || !says("authenticated") || len(accepted) != 1 || accepted[0] != "a") {
			t.Errorf("%q authenticates a user for %q (%v)", body, accepted, err)
		}
	})
}

// FuzzSelectors checks that a webhook gets a request's selector unchanged, or not at all.
func FuzzSelectors(f *testing.F) {
	for _, raw := range []string{"a=b,c!=d", "a in (b,c),!d", "metadata.name=x,spec.nodeName!=y", "a>1", "=", "a==b,a=c", "x notin ()"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if l := labelSelector(raw); l != nil && l.RawSelector != "" {
			t.Errorf("%q is raw", raw)
		}
		if s := fieldSelector(raw); s != nil && s.RawSelector != "" {
			t.Errorf("%q is raw", raw)
		}
	})
}

// FuzzUse checks that a configuration (AuthorizationConfiguration, with expressions) is either
// refused, which changes nothing, or works.
func FuzzUse(f *testing.F) {
	conditions := "    matchConditions: [{expression: \"request.user != 'a' && has(request.resourceAttributes) && request.resourceAttributes.namespace == 'x'\"}]\n"
	for _, text := range []string{configuration("/nowhere", "Deny", conditions), configuration("/nowhere", "NoOpinion", ""),
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: rbac}]\n",
		"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: a}, {type: RBAC, name: a}, null]\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Contains(data, []byte("/dev")) || bytes.Contains(data, []byte("/proc")) {
			return // such files may be endless
		}
		c := NewChain(Authorizers{"RBAC": Always(auth.Allow)})
		err := c.Use(data)
		decision, _, _ := c.Authorize(t.Context(), auth.Attributes{User: auth.User{Name: "u"}, Verb: "get"})
		if err != nil && decision != auth.NoOpinion {
			t.Errorf("a refused configuration (%v) decides %v", err, decision)
		}
	})
}

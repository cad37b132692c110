package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// hook serves reviews and returns a kubeconfig file for them. It checks that the client sends its
// timeout.
func hook(t *testing.T, timeout string, answer func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if uri, accept := r.URL.RequestURI(), r.Header.Get("Accept"); uri != "/review?timeout="+timeout || accept != "application/json, */*" {
			t.Errorf("asked at %s, Accept: %s", uri, accept)
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return file(t, "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a}}]\nclusters: [{name: a, cluster: {server: '"+server.URL+"/review'}}]\n")
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func configuration(kubeconfig, failure, conditions string) string {
	return `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: hook
  webhook:
    timeout: 3s
    authorizedTTL: 1h
    unauthorizedTTL: 1h
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: ` + failure + `
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: "` + kubeconfig + `"}
` + conditions + `- type: RBAC
  name: rbac
`
}

func used(text string) (*Chain, error) {
	c := NewChain(Authorizers{"RBAC": Always(auth.NoOpinion)})
	return c, c.Use([]byte(text))
}

func TestAnswersOfAWebhookAreRemembered(t *testing.T) {
	asked := 0
	kubeconfig := hook(t, "3s", func(w http.ResponseWriter, r *http.Request) {
		asked++
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		switch s := review.Spec; {
		case s.ResourceAttributes != nil && s.ResourceAttributes.Verb == "list":
			if f := s.ResourceAttributes.FieldSelector; f == nil || f.Requirements[0].Key != "spec.nodeName" || f.Requirements[0].Values[0] != "n1" {
				t.Errorf("selector %+v", f)
			}
			review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "listed"}
		case s.User == "mallory":
			review.Status = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no"}
		}
		_ = json.NewEncoder(w).Encode(review)
	})
	all, err := used(configuration(kubeconfig, "NoOpinion", ""))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		a      auth.Attributes
		want   auth.Decision
		reason string
	}{
		"allowed":                 {auth.Attributes{User: auth.User{Name: "alice"}, Verb: "list", Resource: "pods", FieldSelector: "spec.nodeName=n1"}, auth.Allow, "listed"},
		"denied":                  {auth.Attributes{User: auth.User{Name: "mallory"}, Verb: "get", Path: "/x"}, auth.Deny, "no"},
		"left to the next":        {auth.Attributes{User: auth.User{Name: "alice"}, Verb: "get", Path: "/x"}, auth.NoOpinion, "Everything is forbidden."},
		"masters are never asked": {auth.Attributes{User: auth.User{Name: "mallory", Groups: []string{auth.GroupMasters}}, Verb: "get", Path: "/x"}, auth.Allow, ""},
	} {
		for range 2 {
			if d, reason, err := all.Authorize(t.Context(), tc.a); d != tc.want || reason != tc.reason || err != nil {
				t.Errorf("%s: %v %q %v", name, d, reason, err)
			}
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want once for each of three", asked)
	}
}

func TestMatchConditionsAndFailurePolicyApply(t *testing.T) {
	asked := 0
	kubeconfig := hook(t, "3s", func(w http.ResponseWriter, _ *http.Request) { asked++; w.WriteHeader(http.StatusBadRequest) })
	conditions := "    matchConditions:\n    - expression: has(request.resourceAttributes)\n    - expression: \"request.user != 'system:kube-proxy'\"\n"
	for failure, want := range map[string]auth.Decision{"Deny": auth.Deny, "NoOpinion": auth.NoOpinion} {
		all, err := used(configuration(kubeconfig, failure, conditions))
		if err != nil {
			t.Fatal(err)
		}
		asked = 0
		for _, a := range []auth.Attributes{{User: auth.User{Name: "alice"}, Verb: "get", Path: "/x"}, {User: auth.User{Name: "system:kube-proxy"}, Verb: "get", Resource: "pods"}} {
			if d, _, err := all.Authorize(t.Context(), a); d != auth.NoOpinion || err != nil {
				t.Errorf("%v %v", d, err)
			}
		}
		if asked != 0 {
			t.Error("the webhook got a request that its conditions exclude")
		}
		if d, _, err := all.Authorize(t.Context(), auth.Attributes{User: auth.User{Name: "alice"}, Verb: "get", Resource: "pods"}); d != want || err == nil || asked != 1 {
			t.Errorf("%s: %v %v, asked %d times", failure, d, err, asked)
		}
	}
}

func TestInvalidConfigurationsAreRefused(t *testing.T) {
	kubeconfig := hook(t, "3s", func(http.ResponseWriter, *http.Request) {})
	for text, want := range map[string]string{
		configuration(kubeconfig, "Sometimes", ""):                                                     "failurePolicy",
		configuration(kubeconfig, "Deny", "    matchConditions:\n    - expression: request.nothing\n"): "matchConditions",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n":                   "authorizers",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nx: y\n":             "x",
	} {
		if _, err := used(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	inCluster := strings.Replace(configuration(kubeconfig, "Deny", ""), "{type: KubeConfigFile, kubeConfigFile: \""+kubeconfig+"\"}", "{type: InClusterConfig}", 1)
	if _, err := used(inCluster); err == nil || !strings.Contains(err.Error(), `"InClusterConfig" is not allowed for the API server itself`) {
		t.Error(err)
	}
	for _, tc := range []struct {
		flags Flags
		want  string
	}{
		{Flags{Modes: []string{"Webhook"}}, "authorization-mode Webhook's authorization config file not passed"},
		{Flags{Modes: []string{"ABAC"}}, `authorization-mode "ABAC" is not a valid mode`},
		{Flags{Modes: []string{"RBAC", "RBAC"}}, `authorization-mode ["RBAC" "RBAC"] has mode specified more than once`},
		{Flags{Modes: []string{"RBAC"}, WebhookConfig: kubeconfig}, "cannot specify --authorization-webhook-config-file without mode Webhook"},
	} {
		if err := NewChain(Authorizers{"RBAC": Always(auth.NoOpinion)}).UseFlags(tc.flags); err == nil || err.Error() != tc.want {
			t.Errorf("%v: %v", tc.flags, err)
		}
	}
}

func TestPoliciesAreOpenedIfTheFirstConfigurationNamesThem(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: RBAC, name: rbac}\n"
	const abac = head + "- {type: ABAC, name: abac}\n"
	opened := 0
	chain := func(err error) *Chain {
		return NewChain(Authorizers{"RBAC": Always(auth.NoOpinion), "ABAC": Opened(func() (auth.Authorizer, error) { opened++; return Always(auth.Allow), err })})
	}
	bob := auth.Attributes{User: auth.User{Name: "bob"}, Verb: "get", Path: "/"}
	with := chain(nil)
	for range 2 {
		if err := with.Use([]byte(abac)); err != nil {
			t.Fatal(err)
		}
	}
	if d, _, err := with.Authorize(t.Context(), bob); d != auth.Allow || err != nil || opened != 1 {
		t.Errorf("%v %v, opened %d times", d, err, opened)
	}
	without := chain(errors.New("broken"))
	if err := without.Use([]byte(head)); err != nil || opened != 1 {
		t.Errorf("%v, opened %d times", err, opened)
	}
	if err := without.Use([]byte(abac)); err == nil || err.Error() != "authorizer type ABAC is not allowed if it was not enabled at initial server startup" {
		t.Error(err)
	}
	if err := chain(errors.New("broken")).Use([]byte(abac)); err == nil || err.Error() != "broken" {
		t.Error(err)
	}
	if err := chain(nil).UseFlags(Flags{Modes: []string{"ABAC"}}); err != nil || opened != 3 {
		t.Errorf("%v, opened %d times", err, opened)
	}
}

func TestAChangedConfigurationAppliesUnlessItIsInvalid(t *testing.T) {
	allow := NewChain(Authorizers{"AlwaysAllow": Always(auth.Allow), "AlwaysDeny": Always(auth.NoOpinion)})
	bob := auth.Attributes{User: auth.User{Name: "bob"}, Verb: "get", Path: "/"}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	for _, step := range []struct {
		name, text, err string
		want            auth.Decision
	}{
		{"nothing yet", "", "at least one authorization mode must be defined", auth.NoOpinion},
		{"another name", head + "- {type: AlwaysAllow, name: all}\n", "expected name alwaysallow for authorizer AlwaysAllow instead of all", auth.NoOpinion},
		{"the first", head + "- {type: AlwaysAllow, name: alwaysallow}\n", "", auth.Allow},
		{"a broken one", head + "- {type: Nonsense, name: x}\n", "Unsupported value", auth.Allow},
		{"one without a required type", head + "- {type: AlwaysDeny, name: none}\n", "[expected name alwaysdeny for authorizer AlwaysDeny instead of none, missing required types: [AlwaysAllow]]", auth.Allow},
		{"another one", head + "- {type: AlwaysDeny, name: alwaysdeny}\n- {type: AlwaysAllow, name: alwaysallow}\n", "", auth.Allow},
	} {
		if err := allow.Use([]byte(step.text)); (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: %v", step.name, err)
		}
		if d, _, _ := allow.Authorize(t.Context(), bob); d != step.want {
			t.Errorf("%s: %v", step.name, d)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(allow.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "apiserver_authorization_decisions_total" && m.Counter.GetValue() >= 2 {
				return
			}
		}
	}
	t.Errorf("the decisions are not counted: %v", families)
}

func TestAnAnswerWithExcessiveYAMLAliasesIsRefused(t *testing.T) {
	answer := func(n int) []byte {
		return []byte("kind: SubjectAccessReview\napiVersion: authorization.k8s.io/v1\nstatus: {allowed: true, reason: &a " + strings.Repeat("x", 1<<20) + "}\nmore: [" + strings.Repeat("*a, ", n) + "]\n")
	}
	var review authorizationv1.SubjectAccessReview
	if err := decode(answer(2), &review); err != nil || !review.Status.Allowed {
		t.Error(review.Status.Allowed, err)
	}
	if err := decode(answer(100_000), &review); err == nil || !strings.Contains(err.Error(), "excessive aliasing") {
		t.Error(err)
	}
}

// The texts are those of upstream's access reviews for the same answers.
func TestInvalidAnswersAreRefused(t *testing.T) {
	const conversion = "converting (%s) to (v1.SubjectAccessReview): unknown conversion"
	for name, tc := range map[string]struct {
		code         int
		answer, want string
		decision     auth.Decision
	}{
		"nothing":          {200, `{}`, "", auth.NoOpinion},
		"both":             {200, `{"status":{"allowed":true,"denied":true}}`, "webhook subject access review returned both allow and deny response", auth.Deny},
		"no JSON":          {200, `{`, "couldn't get version/kind; json parse error: unexpected end of JSON input", auth.NoOpinion},
		"an unknown kind":  {200, `{"kind":"Foo","apiVersion":"v1","status":{"allowed":true}}`, `no kind "Foo" is registered for version "v1" in scheme`, auth.NoOpinion},
		"an older version": {200, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","status":{"allowed":true}}`, fmt.Sprintf(conversion, "v1beta1.SubjectAccessReview"), auth.NoOpinion},
		"a status":         {200, `{"kind":"Status","apiVersion":"v1","status":"Failure"}`, fmt.Sprintf(conversion, "v1.Status"), auth.NoOpinion},
		"a redirection":    {302, "no", "the server responded with the status code 302 but did not return more information", auth.NoOpinion},
		"a bad request":    {400, "no", "the server rejected our request for an unknown reason", auth.NoOpinion},
		"a refusal":        {403, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not you","code":403}`, "not you", auth.NoOpinion},
	} {
		kubeconfig := hook(t, "3s", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.code)
			_, _ = w.Write([]byte(tc.answer))
		})
		all, err := used(configuration(kubeconfig, "NoOpinion", ""))
		if err != nil {
			t.Fatal(err)
		}
		d, _, err := all.Authorize(t.Context(), auth.Attributes{User: auth.User{Name: "alice"}, Verb: "get", Path: "/x"})
		if d != tc.decision || (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v %v, want %s", name, d, err, tc.want)
		}
	}
}

func TestWebhooksAreDialedThroughEgress(t *testing.T) {
	var stop context.CancelFunc // stops further attempts
	dialed := make(chan string, attempts)
	nowhere := func(_ context.Context, network, address string) (net.Conn, error) {
		dialed <- network + " " + address
		stop()
		return nil, errors.New("connection refused")
	}
	kubeconfig := file(t, "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a}}]\nclusters: [{name: a, cluster: {server: 'https://hook.example.com'}}]\n")
	chain := NewChain(Authorizers{})
	chain.Dial = nowhere
	if err := chain.UseFlags(Flags{Modes: []string{"Webhook"}, WebhookConfig: kubeconfig}); err != nil {
		t.Fatal(err)
	}
	tokens, err := NewTokens(kubeconfig, time.Hour, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(context.Context){
		"an authorizer": func(ctx context.Context) {
			_, _, _ = chain.Authorize(ctx, auth.Attributes{User: auth.User{Name: "u"}, Verb: "get"})
		},
		"tokens": func(ctx context.Context) { _, _, _, _ = tokens.AuthenticateToken(ctx, "t", nil) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		stop = cancel
		ask(ctx)
		cancel()
		if got := <-dialed; got != "tcp hook.example.com:443" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTokensAreReviewed(t *testing.T) {
	asked := 0
	kubeconfig := hook(t, "30s", func(w http.ResponseWriter, r *http.Request) {
		asked++
		if asked == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		switch review.Spec.Token {
		case "alice":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"api", "other"},
				User: authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev"}, Extra: map[string]authenticationv1.ExtraValue{"a": {"b"}}}}
		case "elsewhere":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"other"}}
		case "bad":
			review.Status.Error = "revoked"
		}
		_ = json.NewEncoder(w).Encode(review)
	})
	tokens, err := NewTokens(kubeconfig, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokens.server.backoff = time.Millisecond
	for range 2 {
		user, accepted, ok, err := tokens.AuthenticateToken(t.Context(), "alice", []string{"api"})
		if !ok || err != nil || user.Name != "alice" || user.Groups[0] != "dev" || user.Extra["a"][0] != "b" || len(accepted) != 1 {
			t.Fatalf("%+v %v %v %v", user, accepted, ok, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want a retry and nothing more", asked)
	}
	if _, _, ok, err := tokens.AuthenticateToken(t.Context(), "elsewhere", []string{"api"}); ok || err != nil {
		t.Errorf("a token for another audience: %v %v", ok, err)
	}
	if _, _, ok, err := tokens.AuthenticateToken(t.Context(), "bad", []string{"api"}); ok || err == nil || err.Error() != "revoked" {
		t.Errorf("%v %v", ok, err)
	}
}

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/token"
)

// permissions allows each user the listed permissions, as "VERB RESOURCE[/SUBRESOURCE] NAME"; "*"
// stands for any name.
type permissions map[string][]string

func (g permissions) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	for _, name := range []string{a.Name, "any"} {
		if slices.Contains(g[a.User.Name], strings.TrimSpace(a.Verb+" "+resource+a.Path+" "+name)) {
			return auth.Allow, "", nil
		}
	}
	if slices.Contains(a.User.Groups, auth.GroupAuthenticated) && a.Verb == "create" && a.Resource == "selfsubjectreviews" {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "", nil
}

// headerAuthenticator authenticates each request as the user in its header; the agent's token is of
// a pod on node n1.
type headerAuthenticator struct{}

func (headerAuthenticator) Authenticate(r *http.Request) (auth.User, bool, error) {
	u := auth.User{Name: r.Header.Get("I-Am"), Groups: []string{auth.GroupAuthenticated}}
	if strings.HasSuffix(u.Name, ":agent") {
		u.Extra = map[string][]string{token.ExtraNodeName: {"n1"}}
	}
	return u, true, nil
}

// The answers are upstream's for the same users, roles and headers.
func TestImpersonation(t *testing.T) {
	const agent = "system:serviceaccount:default:agent"
	on := func(mode string) string { return "impersonate-on:" + mode + ":create selfsubjectreviews" }
	s := newTestServer(t, func(c *Config) {
		c.Security.Authenticator = headerAuthenticator{}
		c.Security.Authorizer = permissions{
			"legacy": {"impersonate users any", "impersonate groups any", "impersonate serviceaccounts any", "impersonate uids any", "impersonate userextras/scopes any"},
			"fresh":  {"impersonate users any"},
			"both":   {"impersonate users any", on("arbitrary-node"), "impersonate:arbitrary-node nodes any"},
			"cui":    {on("user-info"), "impersonate:user-info users alice", "impersonate:user-info users system:node:n1", on("arbitrary-node"), on("serviceaccount")},
			"cnoon":  {"impersonate:user-info users any"},
			"cgrp":   {on("user-info"), "impersonate:user-info users any", "impersonate:user-info groups any", "impersonate:user-info uids any", "impersonate:user-info userextras/acme.io/x any"},
			"csa":    {on("serviceaccount"), "impersonate:serviceaccount serviceaccounts any"},
			"carb":   {on("arbitrary-node"), "impersonate:arbitrary-node nodes any"},
			agent:    {on("associated-node"), "impersonate:associated-node nodes *", on("arbitrary-node"), on("user-info")},
		}
	})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	const sa, node = "system:serviceaccount:default:sa", "system:node:n1"
	alice := func(headers ...string) []string { return append([]string{"Impersonate-User", "alice"}, headers...) }
	refused := func(user, verb, resource, group string) string {
		return fmt.Sprintf("User %q cannot %s resource %q in API group %q", user, verb, resource, group)
	}
	for _, tc := range []struct {
		name, user string
		headers    []string
		want       string // "NAME UID GROUPS EXTRA", or a part of the refusal
		code       int
	}{
		{"no impersonation", "bob", nil, "bob  [system:authenticated] []", 201},
		{"a user", "legacy", alice(), "alice  [system:authenticated] []", 201},
		{"every part of a user", "legacy", alice("Impersonate-Group", "g1", "Impersonate-Group", "g2", "Impersonate-Uid", "u", "Impersonate-Extra-Scopes", "a"), "alice u [g1 g2 system:authenticated] [scopes=[a]]", 201},
		{"an extra that is not allowed", "legacy", alice("Impersonate-Extra-Acme.com%2fProject", "a"), refused("legacy", "impersonate", "userextras/acme.com/project", "authentication.k8s.io"), 403},
		{"a constrained refusal comes first", "fresh", alice("Impersonate-Extra-X", "a"), refused("fresh", "impersonate-on:user-info:create", "selfsubjectreviews", "authentication.k8s.io"), 403},
		{"a node, constrained", "both", []string{"Impersonate-User", node}, node + "  [system:nodes system:authenticated] []", 201},
		{"a user, unconstrained", "both", alice(), "alice  [system:authenticated] []", 201},
		{"a node, by the last mode", "both", []string{"Impersonate-User", node}, node + "  [system:authenticated] []", 201},
		{"masters", "legacy", alice("Impersonate-Group", "system:masters"), "alice  [system:masters system:authenticated] []", 201},
		{"a service account", "legacy", []string{"Impersonate-User", sa}, sa + "  [system:serviceaccounts system:serviceaccounts:default system:authenticated] []", 201},
		{"a service account with groups", "legacy", []string{"Impersonate-User", sa, "Impersonate-Group", "x"}, sa + "  [x system:authenticated] []", 201},
		{"an invalid service account name", "legacy", []string{"Impersonate-User", "system:serviceaccount:Default:sa"}, "system:serviceaccount:Default:sa  [system:authenticated] []", 201},
		{"a group without a user", "legacy", []string{"Impersonate-Group", "x"}, `requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"x"}, Extra:map[string][]string(nil)} without impersonating a user name`, 400},
		{"an extra without a user", "legacy", []string{"Impersonate-Extra-Scopes", "x"}, `Extra:map[string][]string{"scopes":[]string{"x"}}} without impersonating a user name`, 400},
		{"the anonymous user", "legacy", []string{"Impersonate-User", "system:anonymous"}, `User "system:anonymous" cannot create`, 403},
		{"unauthenticated", "legacy", alice("Impersonate-Group", "system:unauthenticated"), `User "alice" cannot create`, 403},
		{"a node", "legacy", []string{"Impersonate-User", node}, node + "  [system:authenticated] []", 201},

		{"without any permission", "bob", alice(), refused("bob", "impersonate-on:user-info:create", "selfsubjectreviews", "authentication.k8s.io"), 403},
		{"a node without any permission", "bob", []string{"Impersonate-User", node}, refused("bob", "impersonate-on:arbitrary-node:create", "selfsubjectreviews", "authentication.k8s.io"), 403},
		{"a permission for the identity only", "cnoon", alice(), refused("cnoon", "impersonate-on:user-info:create", "selfsubjectreviews", "authentication.k8s.io"), 403},
		{"a user for this request", "cui", alice(), "alice  [system:authenticated] []", 201},
		{"another user", "cui", []string{"Impersonate-User", "eve"}, refused("cui", "impersonate:user-info", "users", "authentication.k8s.io"), 403},
		{"a uid comes before groups", "cui", alice("Impersonate-Group", "g", "Impersonate-Uid", "u"), refused("cui", "impersonate:user-info", "uids", "authentication.k8s.io"), 403},
		{"a node is not a user", "cui", []string{"Impersonate-User", node}, refused("cui", "impersonate:arbitrary-node", "nodes", "authentication.k8s.io"), 403},
		{"a service account is not a user", "cui", []string{"Impersonate-User", sa}, refused("cui", "impersonate:serviceaccount", "serviceaccounts", "authentication.k8s.io"), 403},
		{"groups for this request", "cgrp", alice("Impersonate-Group", "system:nodes", "Impersonate-Uid", "u", "Impersonate-Extra-acme.io%2Fx", "a"), "alice u [system:nodes system:authenticated] [acme.io/x=[a]]", 201},
		{"masters for this request", "cgrp", alice("Impersonate-Group", "system:masters"), refused("cgrp", "impersonate:user-info", "groups", "authentication.k8s.io") + " at the cluster scope: impersonating the system:masters group is not allowed", 403},
		{"an extra without domain", "cgrp", alice("Impersonate-Extra-Scopes", "a"), `impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "scopes": must be a domain-prefixed path (such as "acme.io/foo")`, 403},
		{"an extra without a name", "cgrp", alice("Impersonate-Extra-", "a"), "impersonating the empty string key in extra is not allowed", 403},
		{"a group without a name", "cgrp", alice("Impersonate-Group", "", "Impersonate-Group", "g"), "impersonating the empty string group is not allowed", 403},
		{"a service account for this request", "csa", []string{"Impersonate-User", sa}, sa + "  [system:serviceaccounts system:serviceaccounts:default system:authenticated] []", 201},
		{"a service account with chosen groups", "csa", []string{"Impersonate-User", sa, "Impersonate-Group", "x"}, refused("csa", "impersonate", "serviceaccounts", ""), 403},
		{"any node", "carb", []string{"Impersonate-User", "system:node:n7"}, "system:node:n7  [system:nodes system:authenticated] []", 201},
		{"any node with a uid", "carb", []string{"Impersonate-User", node, "Impersonate-Uid", "x"}, refused("carb", "impersonate", "users", ""), 403},
		{"an invalid node name", "carb", []string{"Impersonate-User", "system:node:N_1"}, refused("carb", "impersonate-on:user-info:create", "selfsubjectreviews", "authentication.k8s.io"), 403},
		{"its own node", agent, []string{"Impersonate-User", node}, node + "  [system:nodes system:authenticated] []", 201},
		{"another node", agent, []string{"Impersonate-User", "system:node:n2"}, refused(agent, "impersonate:arbitrary-node", "nodes", "authentication.k8s.io"), 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
				strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("I-Am", tc.user)
			for i := 0; i < len(tc.headers); i += 2 {
				req.Header.Add(tc.headers[i], tc.headers[i+1])
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			var answer struct {
				Message string
				Status  json.RawMessage
			}
			if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
			got := answer.Message
			if resp.StatusCode == http.StatusCreated {
				var status authenticationv1.SelfSubjectReviewStatus
				if err := json.Unmarshal(answer.Status, &status); err != nil {
					t.Fatal(err)
				}
				got = describe(&status.UserInfo)
			}
			if sniff := resp.Header.Get("X-Content-Type-Options"); (sniff == "nosniff") != (tc.code >= 400) {
				t.Errorf("X-Content-Type-Options is %q", sniff)
			}
			if resp.StatusCode != tc.code || !strings.Contains(got, tc.want) {
				t.Errorf("%d %s\nwant %d %s", resp.StatusCode, got, tc.code, tc.want)
			}
			if sniffed := resp.Header.Get("X-Content-Type-Options") == "nosniff"; sniffed != (tc.code >= 400) {
				t.Errorf("nosniff: %t", sniffed)
			}
		})
	}
	// A request counts as one attempt, whatever the number of modes tried.
	attempts := func(mode impersonationMode, decision string) float64 {
		var m dto.Metric
		if err := s.metrics.Security.Impersonations.Count.WithLabelValues(string(mode), decision).Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.Counter.GetValue()
	}
	if got, all := attempts("", "denied"), attempts(modeUnconstrained, "denied")+attempts(modeUserInfo, "denied"); got == 0 || all != 0 {
		t.Errorf("%v attempts were denied, %v of them by one way", got, all)
	}
	if got := attempts(modeAssociatedNode, "allowed"); got != 1 {
		t.Errorf("%v attempts to be the node that a pod runs on were allowed", got)
	}
}

func describe(u *authenticationv1.UserInfo) string {
	var extra []string
	for _, k := range slices.Sorted(maps.Keys(u.Extra)) {
		if k != auth.ExtraCredentialID {
			extra = append(extra, fmt.Sprintf("%s=%v", k, []string(u.Extra[k])))
		}
	}
	return fmt.Sprintf("%s %s %v %v", u.Username, u.UID, u.Groups, extra)
}

func FuzzImpersonationHeaders(f *testing.F) {
	f.Add("alice", "u", "g", "Acme.com%2fproject", "x")
	f.Add("system:serviceaccount:default:sa", "", "", "%zz", "")
	f.Add("system:node:n1", "", "system:masters", "", "\x00")
	f.Fuzz(func(t *testing.T, name, uid, group, key, value string) {
		h := http.Header{impersonateUser: {name}, impersonateUID: {uid}, impersonateGroup: {group}, impersonateExtra + key: {value}}
		wanted := impersonatedUser(h)
		if wanted.Name != name || len(wanted.Extra) != 1 {
			t.Errorf("%+v", wanted)
		}
		for _, mode := range append(constrainedModes(&auth.User{Name: name}, &wanted), modeUnconstrained) {
			u := withImplicitGroups(wanted, mode)
			if slices.Contains(u.Groups, auth.GroupMasters) && group != auth.GroupMasters {
				t.Errorf("%+v is a master", u)
			}
		}
	})
}

// failingAuthorizer authorizes nothing and returns an error.
type failingAuthorizer struct {
	decision auth.Decision
	err      error
}

func (f failingAuthorizer) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return f.decision, "", f.err
}

func TestFailedAuthorizerIsAnInternalError(t *testing.T) {
	for name, z := range map[string]failingAuthorizer{
		"a webhook that is unavailable":               {auth.NoOpinion, errors.New("the webhook is away")},
		"a required webhook that is unavailable":      {auth.Deny, errors.New("the webhook is away")},
		"a webhook that answers 404":                  {auth.NoOpinion, apierrors.NewGenericServerResponse(http.StatusNotFound, "POST", schema.GroupResource{}, "", "", 0, true)},
		"a required webhook that answers 404":         {auth.Deny, apierrors.NewGenericServerResponse(http.StatusNotFound, "POST", schema.GroupResource{}, "", "", 0, true)},
		"a webhook that answers 401":                  {auth.Deny, apierrors.NewUnauthorized("who are you?")},
		"a webhook that answers 429":                  {auth.Deny, apierrors.NewTooManyRequestsError("later")},
		"a webhook that answers 403":                  {auth.Deny, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))},
		"an error that wraps another server's answer": {auth.Deny, fmt.Errorf("hook: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestServer(t, func(c *Config) {
				c.Security.Authenticator, c.Security.Authorizer = headerAuthenticator{}, auth.Authorizers{z}
			})
			code, header, body := do(t, s, http.MethodGet, "/api/v1/pods?limit=1", "")
			if want := "Internal Server Error: \"/api/v1/pods?limit=1\": " + z.err.Error() + "\n"; code != http.StatusInternalServerError || body != want ||
				header.Get("Content-Type") != "text/plain; charset=utf-8" || header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%d %v %s", code, header, body)
			}
		})
	}
}

package abac

import (
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
)

func line(spec string) string {
	return `{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {` + spec + "}}\n"
}

// TestLinesAllowRequests compares with the decisions of upstream's kube-apiserver v1.36.3, with one
// exception. If a line has a user and a group and one of them is '*', upstream applies it to every
// authenticated user and ignores the other. Here both must match.
func TestLinesAllowRequests(t *testing.T) {
	alice := auth.User{Name: "alice", Groups: []string{"staff", auth.GroupAuthenticated}}
	stranger := auth.Anonymous()
	pods := func(verb string) auth.Attributes {
		return auth.Attributes{User: alice, Verb: verb, Namespace: "n", Resource: "pods"}
	}
	path := func(verb, path string) auth.Attributes { return auth.Attributes{User: alice, Verb: verb, Path: path} }
	with := func(a auth.Attributes, change func(*auth.Attributes)) auth.Attributes { change(&a); return a }
	for name, tc := range map[string]struct {
		spec    string
		asked   auth.Attributes
		allowed bool
	}{
		"the user, what it says":                      {`"user": "alice", "namespace": "n", "resource": "pods"`, pods("delete"), true},
		"another user":                                {`"user": "bob", "namespace": "n", "resource": "pods"`, pods("get"), false},
		"a group of the user's":                       {`"group": "staff", "namespace": "n", "resource": "pods"`, pods("get"), true},
		"a group of others":                           {`"group": "guests", "namespace": "n", "resource": "pods"`, pods("get"), false},
		"the user in a group of others":               {`"user": "alice", "group": "guests", "namespace": "n", "resource": "pods"`, pods("get"), false},
		"no user":                                     {`"namespace": "*", "resource": "*", "apiGroup": "*"`, pods("get"), false},
		"everybody":                                   {`"user": "*", "namespace": "*", "resource": "*", "apiGroup": "*"`, pods("get"), true},
		"any group":                                   {`"group": "*", "namespace": "*", "resource": "*", "apiGroup": "*"`, pods("get"), true},
		"any user, of a group of the user's":          {`"user": "*", "group": "staff", "namespace": "n", "resource": "pods"`, pods("get"), true},
		"any user, of a group of others":              {`"user": "*", "group": "guests", "namespace": "n", "resource": "pods"`, pods("get"), false},
		"the user, in any group":                      {`"user": "alice", "group": "*", "namespace": "n", "resource": "pods"`, pods("get"), true},
		"another user, in any group":                  {`"user": "bob", "group": "*", "namespace": "n", "resource": "pods"`, pods("get"), false},
		"any user is not one without credentials":     {`"user": "*", "namespace": "*", "resource": "*"`, with(pods("get"), func(a *auth.Attributes) { a.User = stranger }), false},
		"nor is any group":                            {`"group": "*", "namespace": "*", "resource": "*"`, with(pods("get"), func(a *auth.Attributes) { a.User = stranger }), false},
		"those without credentials, by their group":   {`"group": "system:unauthenticated", "namespace": "*", "resource": "*"`, with(pods("get"), func(a *auth.Attributes) { a.User = stranger }), true},
		"every authenticated user":                    {`"group": "system:authenticated", "namespace": "n", "resource": "pods"`, pods("get"), true},
		"another namespace":                           {`"user": "alice", "namespace": "m", "resource": "pods"`, pods("get"), false},
		"an empty namespace matches no namespace":     {`"user": "alice", "resource": "pods"`, pods("get"), false},
		"a resource without namespace":                {`"user": "alice", "resource": "nodes"`, auth.Attributes{User: alice, Verb: "get", Resource: "nodes"}, true},
		"another group of the API":                    {`"user": "alice", "namespace": "n", "resource": "pods", "apiGroup": "x"`, pods("get"), false},
		"no group is the core one":                    {`"user": "alice", "namespace": "n", "resource": "*"`, with(pods("get"), func(a *auth.Attributes) { a.Group = "apps" }), false},
		"a subresource goes with its resource":        {`"user": "alice", "namespace": "n", "resource": "pods"`, with(pods("get"), func(a *auth.Attributes) { a.Subresource = "log" }), true},
		"reading, get":                                {`"user": "alice", "readonly": true, "namespace": "n", "resource": "pods"`, pods("get"), true},
		"reading, list":                               {`"user": "alice", "readonly": true, "namespace": "n", "resource": "pods"`, pods("list"), true},
		"reading, watch":                              {`"user": "alice", "readonly": true, "namespace": "n", "resource": "pods"`, pods("watch"), true},
		"reading is not writing":                      {`"user": "alice", "readonly": true, "namespace": "n", "resource": "pods"`, pods("patch"), false},
		"a path":                                      {`"user": "alice", "nonResourcePath": "/metrics"`, path("get", "/metrics"), true},
		"another path":                                {`"user": "alice", "nonResourcePath": "/metrics"`, path("get", "/metrics/slis"), false},
		"paths below one":                             {`"user": "alice", "nonResourcePath": "/debug/*"`, path("get", "/debug/pprof"), true},
		"all paths":                                   {`"user": "alice", "nonResourcePath": "*"`, path("post", "/x"), true},
		"reading a path":                              {`"user": "alice", "readonly": true, "nonResourcePath": "*"`, path("get", "/x"), true},
		"reading a path is not writing to it":         {`"user": "alice", "readonly": true, "nonResourcePath": "*"`, path("post", "/x"), false},
		"a line for paths says nothing of resources":  {`"user": "alice", "nonResourcePath": "*"`, pods("get"), false},
		"a line for resources says nothing of a path": {`"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*"`, path("get", "/x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			policies, err := Parse([]byte("# a comment\n\n" + line(`"user": "somebody"`) + line(tc.spec)))
			if err != nil {
				t.Fatal(err)
			}
			decision, _, err := policies.Authorize(t.Context(), tc.asked)
			if err != nil || decision != auth.Allow && tc.allowed || decision != auth.NoOpinion && !tc.allowed {
				t.Errorf("decided %v, %v", decision, err)
			}
		})
	}
}

// Upstream's tests of authorization contain such lines.
func TestMissingFieldsOfAnUnversionedLineMatchEverything(t *testing.T) {
	alice := auth.User{Name: "alice", Groups: []string{auth.GroupAuthenticated}}
	bob := auth.User{Name: "bob", Groups: []string{auth.GroupAuthenticated}}
	deletes := func(user auth.User) auth.Attributes {
		return auth.Attributes{User: user, Verb: "delete", Group: "apps", Namespace: "n", Resource: "deployments"}
	}
	path := auth.Attributes{User: alice, Verb: "get", Path: "/healthz"}
	for name, tc := range map[string]struct {
		line    string
		asked   auth.Attributes
		allowed bool
	}{
		"a user, everything":                     {`{"user": "alice"}`, deletes(alice), true},
		"a user, paths":                          {`{"user": "alice"}`, path, true},
		"a user is no other":                     {`{"user": "alice"}`, deletes(bob), false},
		"no user means every authenticated user": {`{}`, deletes(bob), true},
		"no user excludes anonymous requests":    {`{}`, deletes(auth.Anonymous()), false},
		"a group":                                {`{"group": "system:unauthenticated"}`, deletes(auth.Anonymous()), true},
		"a namespace":                            {`{"namespace": "n"}`, deletes(alice), true},
		"another namespace":                      {`{"namespace": "m"}`, deletes(alice), false},
		"a namespace has no paths":               {`{"namespace": "n"}`, path, false},
		"a resource, of every group":             {`{"resource": "deployments"}`, deletes(alice), true},
		"another resource":                       {`{"resource": "pods"}`, deletes(alice), false},
		"reading is not writing":                 {`{"readonly": true}`, deletes(alice), false},
	} {
		t.Run(name, func(t *testing.T) {
			policies, err := Parse([]byte(tc.line))
			if err != nil && tc.allowed {
				t.Fatal(err)
			}
			if decision, _, err := policies.Authorize(t.Context(), tc.asked); err != nil || (decision == auth.Allow) != tc.allowed {
				t.Errorf("decided %v, %v", decision, err)
			}
		})
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":            {"x", "line 2: "},
		"an unknown field":   {line(`"usr": "alice"`), `line 2: json: unknown field "usr"`},
		"another kind":       {`{"apiVersion": "v1", "kind": "Pod"}`, `line 2: kind "Pod" in "v1"`},
		"a path of old":      {`{"user": "alice", "nonResourcePath": "*"}`, `line 2: json: unknown field "nonResourcePath"`},
		"a kind alone":       {`{"kind": "Policy"}`, `line 2: kind "Policy" in ""`},
		"two in one line":    {strings.TrimSpace(line("")) + "{}", "line 2: more than one JSON object"},
		"half of an object":  {`{"apiVersion": "abac`, "line 2: "},
		"a list of policies": {"[]", "line 2: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte("# first\n" + tc.text + "\n")); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(line(`"user": "alice", "resource": "*"`)))
	f.Add([]byte(`{"user": "alice", "readonly": true}`))
	f.Add([]byte("# nothing\n\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if policies, err := Parse(data); err != nil && policies != nil {
			t.Error("policies beside an error")
		}
	})
}

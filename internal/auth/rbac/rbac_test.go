package rbac

import (
	"context"
	"reflect"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

func ask(u, verb, group, resource, namespace, name string) auth.Attributes {
	resource, sub, _ := strings.Cut(resource, "/")
	a := auth.Attributes{User: auth.User{Name: u, Groups: []string{auth.GroupAuthenticated}}, Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: name}
	if namespace, _, ok := auth.SplitServiceAccount(u); ok {
		a.User.Groups = append(a.User.Groups, auth.ServiceAccountGroups(namespace)...)
	}
	return a
}

func bootstrapped(t *testing.T, more ...client.Object) (*Authorizer, *clienttest.Memory) {
	t.Helper()
	m := clienttest.NewMemory(more...)
	z, err := New(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Bootstrap(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	return z, m
}

func TestBootstrapPolicyDecidesAsUpstreams(t *testing.T) {
	grant := func(role, u string) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: u}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: u}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	z, _ := bootstrapped(t, grant("view", "viewer"), grant("edit", "editor"), grant("admin", "boss"))
	cases := []struct {
		a     auth.Attributes
		allow bool
	}{
		{ask("viewer", "list", "", "pods", "ns", ""), true},
		{ask("viewer", "get", "", "pods/log", "ns", "p"), true},
		{ask("viewer", "get", "", "secrets", "ns", "s"), false},
		{ask("viewer", "list", "", "pods", "other", ""), false},
		{ask("viewer", "list", "", "pods", "", ""), false},
		{ask("viewer", "create", "apps", "deployments", "ns", ""), false},
		{ask("editor", "create", "apps", "deployments", "ns", ""), true},
		{ask("editor", "get", "", "secrets", "ns", "s"), true},
		{ask("editor", "list", "", "pods", "ns", ""), true},
		{ask("viewer", "watch", "architecture.knarr.io", "components", "ns", ""), true},
		{ask("viewer", "get", "architecture.knarr.io", "traffics", "ns", "t"), true},
		{ask("viewer", "create", "architecture.knarr.io", "components", "ns", ""), false},
		{ask("editor", "patch", "architecture.knarr.io", "systems", "ns", "s"), true},
		{ask("editor", "list", "architecture.knarr.io", "traffics", "ns", ""), true},
		{ask("editor", "update", "architecture.knarr.io", "traffics", "ns", "t"), false},
		{ask("editor", "update", "architecture.knarr.io", "components/status", "ns", "c"), false},
		{ask("boss", "delete", "architecture.knarr.io", "components", "ns", "c"), true},
		{ask("editor", "create", "rbac.authorization.k8s.io", "roles", "ns", ""), false},
		{ask("boss", "create", "rbac.authorization.k8s.io", "roles", "ns", ""), true},
		{ask("boss", "delete", "batch", "jobs", "ns", "j"), true},
		{ask("boss", "update", "", "resourcequotas", "ns", "q"), false},
		{ask("anyone", "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", ""), true},
		{ask("system:kube-scheduler", "create", "", "pods/binding", "ns", "p"), true},
		{ask("system:kube-scheduler", "update", "", "persistentvolumes", "", "v"), true},
		{ask("system:kube-scheduler", "create", "", "pods", "ns", ""), false},
		{ask("system:serviceaccount:kube-system:replicaset-controller", "create", "", "pods", "ns", ""), true},
		{ask("system:serviceaccount:kube-system:replicaset-controller", "create", "apps", "deployments", "ns", ""), false},
		{ask("system:serviceaccount:kube-system:disruption-controller", "get", "example.com", "things/scale", "ns", "x"), true},
		{ask("system:serviceaccount:ns:default", "list", "", "pods", "ns", ""), false},
		// Answers of upstream's server to requests that must not be allowed.
		{ask("system:serviceaccount:kube-system:expand-controller", "get", "", "secrets", "ns", "s"), false},
		{ask("system:serviceaccount:kube-system:attachdetach-controller", "get", "", "secrets", "ns", "s"), false},
		{ask("system:serviceaccount:kube-system:persistent-volume-binder", "get", "", "secrets", "ns", "s"), false},
		{ask("system:serviceaccount:kube-system:disruption-controller", "patch", "", "pods", "ns", "p"), false},
		{ask("system:serviceaccount:kube-system:statefulset-controller", "update", "", "pods/finalizers", "ns", "p"), true},
		{ask("system:kube-scheduler", "patch", "resource.k8s.io", "resourceclaims/binding", "ns", "c"), true},
		{ask("system:kube-scheduler", "create", "coordination.k8s.io", "leasecandidates", "kube-system", ""), true},
		{ask("system:serviceaccount:kube-system:kube-controller-manager", "update", "coordination.k8s.io", "leases", "kube-system", "kube-controller-manager"), true},
		{ask("system:serviceaccount:kube-system:kube-controller-manager", "update", "", "configmaps", "kube-system", "kube-controller-manager"), false},
		{auth.Attributes{User: auth.Anonymous(), Verb: "get", Path: "/livez"}, true},
		{auth.Attributes{User: auth.Anonymous(), Verb: "get", Path: "/apis"}, false},
		{auth.Attributes{User: auth.User{Name: "x", Groups: []string{auth.GroupAuthenticated}}, Verb: "get", Path: "/apis/apps/v1"}, true},
		{auth.Attributes{User: auth.User{Name: "x", Groups: []string{auth.GroupServiceAccounts}}, Verb: "get", Path: "/openid/v1/jwks"}, true},
	}
	for _, c := range cases {
		d, reason, err := z.Authorize(context.Background(), c.a)
		if err != nil || (d == auth.Allow) != c.allow {
			t.Errorf("%s: allowed %v, want %v (%s, %v)", auth.ForbiddenText(c.a), d == auth.Allow, c.allow, reason, err)
		}
	}
	_, reason, _ := z.Authorize(context.Background(), ask("viewer", "list", "", "pods", "ns", ""))
	if want := `RBAC: allowed by RoleBinding "viewer/ns" of ClusterRole "view" to User "viewer"`; reason != want {
		t.Errorf("reason is %s, want %s", reason, want)
	}
}

func TestAnEmptyClusterIsAuthorizedBeforeItsRolesAreWritten(t *testing.T) {
	m := clienttest.NewMemory()
	z, err := New(context.Background(), m, "GenericWorkload")
	if err != nil {
		t.Fatal(err)
	}
	if d, _, _ := z.Authorize(context.Background(), ask("system:kube-scheduler", "list", "scheduling.k8s.io", "podgroups", "", "")); d != auth.Allow {
		t.Error("the rule of a feature gate is missing before the roles are written")
	}
	request := ask("system:kube-scheduler", "create", "", "pods/binding", "ns", "p")
	if d, _, _ := z.Authorize(context.Background(), request); d != auth.Allow {
		t.Error("refused before the roles are written")
	}
	if err := z.Bootstrap(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	if z.starting.Load() != nil {
		t.Error("the roles in memory still count")
	}
	m.Remove(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "system:kube-scheduler"}})
	if d, _, _ := z.Authorize(context.Background(), request); d == auth.Allow {
		t.Error("allowed although the binding is gone")
	}
}

func TestRolesOfNodesAndTheirPartsReadNoPods(t *testing.T) {
	of := func(name, verb, group, resource string) auth.Attributes {
		a := ask(name, verb, group, resource, "kube-system", "")
		a.User.Groups = append(a.User.Groups, auth.GroupNodes)
		return a
	}
	foreign := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "wanted"}, Subjects: []rbacv1.Subject{group(auth.GroupNodes)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
	}
	stored, _ := bootstrapped(t)
	own, _ := bootstrapped(t, foreign)
	starting, err := New(t.Context(), clienttest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		verb, group, resource, name string
		nodes, parts                bool
	}{
		{"get", "", "configmaps", "knarr-cluster", true, false},
		{"create", "certificates.k8s.io", "certificatesigningrequests/selfnodeserver", "", true, false},
		{"get", "", "configmaps", "other", false, false},
		{"list", "", "configmaps", "", false, false},
		{"get", "", "pods", "p", false, false},
		{"list", "", "pods", "", false, false},
		{"watch", "", "pods", "", false, false},
		{"get", "", "secrets", "s", false, false},
		{"list", "", "persistentvolumes", "", false, false},
		{"watch", "", "nodes", "", false, true},
		{"list", "", "namespaces", "", false, true},
		{"watch", "", "services", "", false, true},
		{"list", "discovery.k8s.io", "endpointslices", "", false, true},
		{"list", "networking.k8s.io", "networkpolicies", "", false, true},
		{"watch", "knarr.dev", "policypeers", "", false, true},
		{"patch", "knarr.dev", "policypeers", "p", false, false},
		{"patch", "", "nodes", "n1", false, false},
		{"create", "", "services", "", false, true},
		{"patch", "", "services", "kube-dns", false, false},
		{"patch", "discovery.k8s.io", "endpointslices", "kube-dns-n1", false, true},
		{"create", "", "serviceaccounts/token", "knarr-node", false, false},
	} {
		for name, z := range map[string]*Authorizer{"stored": stored, "in memory": starting} {
			a := of("system:node:n1", c.verb, c.group, c.resource)
			a.Name = c.name
			if d, _, _ := z.Authorize(t.Context(), a); d == auth.Allow != c.nodes {
				t.Errorf("%s: a node: %s %s %s: %v, want %t", name, c.verb, c.resource, c.name, d, c.nodes)
			}
			for _, who := range []string{"system:anonymous", "somebody", "system:node:"} {
				a.User.Name = who
				if d, reason, _ := z.Authorize(t.Context(), a); d == auth.Allow {
					t.Errorf("%s: %s may %s %s: %s", name, who, c.verb, c.resource, reason)
				}
			}
			a.User = auth.NodePart("n1")
			if d, _, _ := z.Authorize(t.Context(), a); d == auth.Allow != c.parts {
				t.Errorf("%s: a part of a node: %s %s %s: %v, want %t", name, c.verb, c.resource, c.name, d, c.parts)
			}
		}
	}
	for _, who := range []string{"somebody", "system:node:n1"} {
		if d, _, _ := stored.Authorize(t.Context(), of(who, "patch", "", "events")); d == auth.Allow {
			t.Errorf("%s may change events by roles, but only the node authorizer should allow that", who)
		}
	}
	if d, _, _ := own.Authorize(t.Context(), of("somebody", "watch", "discovery.k8s.io", "endpointslices")); d != auth.Allow {
		t.Error("a user's own binding of the group does not count")
	}
}

func TestBootstrapAddsMissingRulesAndRemovesNone(t *testing.T) {
	ctx := context.Background()
	_, m := bootstrapped(t)
	role, err := client.Get[*rbacv1.ClusterRole](ctx, m, "", "system:kube-dns")
	if err != nil {
		t.Fatal(err)
	}
	changed := role.DeepCopy()
	changed.Rules = []rbacv1.PolicyRule{rule("get", core, "pods")}
	m.Put(changed)
	kept := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view", Annotations: map[string]string{annotationAutoUpdate: "false"}}}
	m.Put(kept)
	foreign := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "system:kube-dns"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "other"},
	}
	m.Put(foreign)
	if err := reconcile(ctx, m, Bootstrap()); err != nil {
		t.Fatal(err)
	}
	role, _ = client.Get[*rbacv1.ClusterRole](ctx, m, "", "system:kube-dns")
	dns, pods := ask("x", "list", "", "services", "", ""), ask("x", "get", "", "pods", "", "p")
	allows := func(a auth.Attributes) bool {
		for i := range role.Rules {
			if Allows(&role.Rules[i], &a) {
				return true
			}
		}
		return false
	}
	if !allows(dns) || !allows(pods) {
		t.Errorf("rules are %v", role.Rules)
	}
	if view, _ := client.Get[*rbacv1.ClusterRole](ctx, m, "", "view"); len(view.Rules) != 0 || view.AggregationRule != nil {
		t.Error("a role with autoupdate=false was changed")
	}
	if b, _ := client.Get[*rbacv1.ClusterRoleBinding](ctx, m, "", "system:kube-dns"); b.RoleRef.Name != "system:kube-dns" {
		t.Error("a binding to another role was not replaced")
	}
}

func TestUsersCannotGrantMoreThanTheyHave(t *testing.T) {
	binding := func(u, role string) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: u}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: u}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	escalator := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "escalator"}, Rules: []rbacv1.PolicyRule{rule("escalate bind", "rbac.authorization.k8s.io", "roles clusterroles")}}
	ofOne := rule("escalate", "rbac.authorization.k8s.io", "roles", "r")
	keeper := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Rules: []rbacv1.PolicyRule{ofOne}}
	z, _ := bootstrapped(t, binding("boss", "admin"), binding("trusted", "escalator"), escalator, binding("keeper", "keeper"), keeper)
	g := Grants{Rules: z, Authorizer: z}
	role := func(rules ...rbacv1.PolicyRule) runtime.Object {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}, Rules: rules}
	}
	to := func(name string) runtime.Object {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}
	}
	owned := role(rule("*", core, "nodes")).(*rbacv1.Role)
	owned.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
	aggregated := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, AggregationRule: &rbacv1.AggregationRule{}}
	cases := []struct {
		name, user string
		obj, old   runtime.Object
		want       string // "" means no error
	}{
		{"held permissions", "boss", role(rule("get list", core, "pods")), nil, ""},
		{"permissions that are not held", "boss", role(rule("get list", core, "pods nodes")), nil,
			`roles.rbac.authorization.k8s.io "r" is forbidden: user "boss" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:` + "\n" + `{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list"]}`},
		{"with the verb escalate", "trusted", role(rule("get list", core, "nodes")), nil, ""},
		{"with the verb escalate for this role", "keeper", role(rule("get list", core, "nodes")), role(), ""},
		{"with the verb escalate for a role that is not there", "keeper", role(rule("get list", core, "nodes")), nil, "RBAC permissions not currently held"},
		{"an aggregation, created", "boss", aggregated, nil, "must have cluster-admin privileges to use the aggregationRule"},
		{"an aggregation, updated", "boss", aggregated, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}}, "must have cluster-admin privileges to use an aggregationRule"},
		{"garbage collection", "nobody", owned, role(rule("*", core, "nodes")), ""},
		{"binding of held permissions", "boss", to("view"), nil, ""},
		{"binding of more", "boss", to("cluster-admin"), nil, `rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "boss"`},
		{"binding of nothing", "boss", to("gone"), nil, `rolebindings.rbac.authorization.k8s.io "gone" not found`},
		{"binding with the verb bind", "trusted", to("cluster-admin"), nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := g.Check(context.Background(), ask(c.user, "", "", "", "", "").User, c.old == nil, c.obj, c.old)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			case c.want != "" && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
				t.Errorf("%v is no status error", err)
			}
		})
	}
}

func TestForbiddenReadsAsUpstreams(t *testing.T) {
	z, _ := bootstrapped(t)
	for want, a := range map[string]auth.Attributes{
		`pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "y"`:                                    ask("x", "list", "", "pods", "y", ""),
		`deployments.apps "d" is forbidden: User "x" cannot update resource "deployments/scale" in API group "apps" in the namespace "y"`: ask("x", "update", "apps", "deployments/scale", "y", "d"),
		`nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the cluster scope`:                                  ask("x", "list", "", "nodes", "", ""),
		`forbidden: User "system:anonymous" cannot get path "/x"`:                                                                         {User: auth.Anonymous(), Verb: "get", Path: "/x"},
	} {
		if err := auth.Check(context.Background(), z, a); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

func TestReviewRulesListsAUsersRules(t *testing.T) {
	z, _ := bootstrapped(t)
	notFound := func(kind string) string {
		_, err := resolve(newMemory(Bootstrap()), rbacv1.RoleRef{Kind: kind, Name: "gone"}, "ns")
		return err.Error()
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "ns"}}
	if err := z.ReviewRules(ask("x", "", "", "", "", "").User, review); err != nil {
		t.Fatal(err)
	}
	if want := `clusterrole.rbac.authorization.k8s.io "gone" not found`; notFound("ClusterRole") != want {
		t.Errorf("a role that is not there: %s", notFound("ClusterRole"))
	}
	if want := `role.rbac.authorization.k8s.io "gone" not found`; notFound("Role") != want {
		t.Errorf("a role that is not there: %s", notFound("Role"))
	}
	if len(review.Status.ResourceRules) == 0 || len(review.Status.NonResourceRules) == 0 || review.Status.Incomplete {
		t.Errorf("%+v", review.Status)
	}
}

func TestTheBootstrapPolicyIsTheSameEachTime(t *testing.T) {
	first := Bootstrap()
	for range 10 {
		if !reflect.DeepEqual(first, Bootstrap()) {
			t.Fatal("two of them differ")
		}
	}
}

func TestPolicyNamesAreUniqueAndItsBindingsResolve(t *testing.T) {
	p := Bootstrap()
	m, seen := newMemory(p), map[string]bool{}
	for _, r := range p.ClusterRoles {
		if seen[r.Name] {
			t.Errorf("ClusterRole %s is there twice", r.Name)
		}
		seen[r.Name] = true
	}
	for _, b := range p.ClusterRoleBindings {
		if _, err := resolve(m, b.RoleRef, ""); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	for _, b := range p.RoleBindings {
		if _, err := resolve(m, b.RoleRef, b.Namespace); err != nil {
			t.Errorf("%s/%s: %v", b.Namespace, b.Name, err)
		}
	}
}

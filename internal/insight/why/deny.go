package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Causes of denied requests.
const (
	causeRBAC        = "rbac-no-rule"
	causeRBACVerb    = "rbac-verb"
	causeRBACName    = "rbac-resource-name"
	causeRBACSub     = "rbac-subresource"
	causeRBACGroup   = "rbac-api-group"
	causeRBACUnbound = "rbac-not-bound"
	causeRBACRole    = "rbac-role"
)

// Request is a request to the API whose permission is in question.
type Request struct {
	User   string
	Groups []string
	Verb   string
	// Group, Resource and Subresource name the resource; Name is empty for all objects.
	Group, Resource, Subresource, Name string
	// Namespace is empty for requests about the whole cluster.
	Namespace string
	// Path is that of a request without a resource, such as /metrics. The fields above are empty
	// then.
	Path string
}

func (r Request) String() string {
	if r.Path != "" {
		return r.Verb + " the path " + r.Path
	}
	what := schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	if r.Name != "" {
		what += " " + r.Name
	}
	if r.Namespace == "" {
		return r.Verb + " " + what + " in the whole cluster"
	}
	return r.Verb + " " + what + " in namespace " + r.Namespace
}

// binding is a RoleBinding or a ClusterRoleBinding that applies to the request's namespace.
type binding struct {
	ref      Ref
	role     Ref
	subjects []rbacv1.Subject
}

// Denied explains with RBAC's objects why a request is denied. No finding means that it is allowed;
// allowed is the reason.
func Denied(s *Snapshot, r Request) (out []Finding, allowed string) {
	if slices.Contains(r.Groups, "system:masters") {
		return nil, "the group system:masters may do everything"
	}
	bindings, ok := bindingsFor(s, r.Namespace)
	if !ok {
		return nil, ""
	}
	subject := Ref{Kind: "User", Name: r.User}
	var mine []Fact
	var near nearest
	var missing []Finding
	for _, b := range bindings {
		if !slices.ContainsFunc(b.subjects, func(x rbacv1.Subject) bool { return isSubject(x, r, b.ref.Namespace) }) {
			continue
		}
		rules, presence := rulesOf(s, b.role)
		if presence == Absent {
			missing = append(missing, Finding{
				Cause: causeRBACRole, Subject: b.ref, Problem: "it grants " + b.role.String() + ", which does not exist.", Remedy: "Create the role, or bind another one.",
			})
			continue
		}
		// Bindings that all users have say nothing.
		if !strings.HasPrefix(b.ref.Name, "system:") && !strings.HasPrefix(b.ref.Name, "knarr:") {
			mine = append(mine, Fact{Text: b.ref.String() + " grants " + b.role.String() + " to the user or its groups", Object: &b.ref})
		}
		for _, rule := range rules {
			if covers(rule.Verbs, r.Verb) && coversRequest(rule, r) {
				return nil, b.role.String() + " allows it, granted by " + b.ref.String()
			}
			near.add(b.role, rule, r)
		}
	}
	f := Finding{Cause: causeRBAC, Subject: subject, Problem: "no rule lets " + r.User + " " + r.String() + ".", Evidence: mine}
	able := ableRoles(s, r)
	switch {
	case len(missing) > 0:
		return missing, ""
	case near.cause != "":
		f.Cause, f.Problem = near.cause, near.problem
		f.Evidence = append(f.Evidence, Fact{Text: names(near.facts)})
	case len(able) > 0:
		f.Cause = causeRBACUnbound
	}
	if len(able) > 0 {
		f.Evidence = append(f.Evidence, Fact{Text: "roles that would allow it: " + names(able)})
	}
	f.Remedy = grant(r, able)
	return []Finding{f}, ""
}

// nearest is the rule that comes nearest to a request: it differs in one point only.
type nearest struct {
	cause, problem string
	facts          []string
}

// nearness orders the points, the nearest first.
var nearness = []string{causeRBACName, causeRBACVerb, causeRBACSub, causeRBACGroup}

func (n *nearest) add(role Ref, rule rbacv1.PolicyRule, r Request) {
	if r.Path != "" {
		return
	}
	verb := covers(rule.Verbs, r.Verb)
	anyName, whole, anyGroup := rule, r, rule
	anyName.ResourceNames, whole.Subresource = nil, ""
	anyGroup.APIGroups = []string{"*"}
	cause, problem, fact := "", "", ""
	switch {
	case verb && coversResource(anyName, r):
		cause, problem = causeRBACName, "a role of "+r.User+" covers only some "+r.Resource+" by name."
		if r.Name != "" {
			problem = "a role of " + r.User + " covers " + r.Resource + ", and not the one named " + r.Name + "."
		}
		fact = fmt.Sprintf("%s names only %s", role, names(rule.ResourceNames))
	case coversResource(rule, r):
		cause, problem = causeRBACVerb, "a role of "+r.User+" covers "+r.Resource+", and not the verb "+r.Verb+"."
		fact = fmt.Sprintf("%s allows only %s", role, strings.Join(rule.Verbs, ", "))
	case verb && r.Subresource != "" && coversResource(rule, whole):
		cause, problem = causeRBACSub, "a role of "+r.User+" covers "+r.Resource+", and not their subresource "+r.Subresource+"."
		fact = fmt.Sprintf("%s has %s without /%s", role, strings.Join(rule.Resources, ", "), r.Subresource)
	case verb && !slices.Contains(rule.Resources, "*") && coversResource(anyGroup, r):
		cause, problem = causeRBACGroup, fmt.Sprintf("a role of %s covers %s of another API group than %q.", r.User, r.Resource, r.Group)
		fact = fmt.Sprintf("%s names the API groups %q", role, rule.APIGroups)
	default:
		return
	}
	is, was := slices.Index(nearness, cause), slices.Index(nearness, n.cause)
	switch {
	case was >= 0 && is > was:
	case is == was:
		n.facts = append(n.facts, fact)
	default:
		n.cause, n.problem, n.facts = cause, problem, []string{fact}
	}
}

// grant returns the command that would allow a request.
func grant(r Request, able []string) string {
	who := "--user=" + r.User
	if account, ok := strings.CutPrefix(r.User, "system:serviceaccount:"); ok {
		who = "--serviceaccount=" + account
	}
	if r.Path != "" {
		name := strings.NewReplacer(":", "-", "@", "-").Replace(r.User) + "-" + r.Verb + strings.TrimSuffix(strings.ReplaceAll(r.Path, "/", "-"), "-*")
		return fmt.Sprintf("kubectl create clusterrole %s --verb=%s --non-resource-url=%s, and bind it: kubectl create clusterrolebinding %s --clusterrole=%s %s", name, r.Verb, r.Path, name, name, who)
	}
	name := strings.NewReplacer(":", "-", "/", "-", "@", "-").Replace(r.User) + "-" + r.Verb + "-" + r.Resource
	if r.Namespace == "" {
		if len(able) > 0 {
			return fmt.Sprintf("kubectl create clusterrolebinding %s --clusterrole=%s %s", name, strings.TrimPrefix(able[0], "clusterrole/"), who)
		}
		return fmt.Sprintf("kubectl create clusterrole %s --verb=%s --resource=%s, and bind it: kubectl create clusterrolebinding %s --clusterrole=%s %s", name, r.Verb, fullResource(r), name, name, who)
	}
	if len(able) > 0 {
		kind, role, _ := strings.Cut(able[0], "/")
		return fmt.Sprintf("kubectl create rolebinding %s -n %s --%s=%s %s", name, r.Namespace, kind, role, who)
	}
	return fmt.Sprintf("kubectl create role %s -n %s --verb=%s --resource=%s, and bind it: kubectl create rolebinding %s -n %s --role=%s %s", name, r.Namespace, r.Verb, fullResource(r), name, r.Namespace, name, who)
}

func fullResource(r Request) string {
	out := r.Resource
	if r.Group != "" {
		out += "." + r.Group
	}
	if r.Subresource != "" {
		out += "/" + r.Subresource
	}
	return out
}

func bindingsFor(s *Snapshot, namespace string) (out []binding, ok bool) {
	wide, ok := list[*rbacv1.ClusterRoleBinding](s, "")
	for _, b := range wide {
		out = append(out, binding{refTo(b), Ref{b.RoleRef.Kind, "", b.RoleRef.Name}, b.Subjects})
	}
	if namespace == "" {
		return out, ok
	}
	narrow, narrowOK := list[*rbacv1.RoleBinding](s, namespace)
	for _, b := range narrow {
		role := Ref{b.RoleRef.Kind, "", b.RoleRef.Name}
		if b.RoleRef.Kind == "Role" {
			role.Namespace = namespace
		}
		out = append(out, binding{refTo(b), role, b.Subjects})
	}
	return out, ok && narrowOK
}

func isSubject(x rbacv1.Subject, r Request, namespace string) bool {
	switch x.Kind {
	case rbacv1.UserKind:
		return x.Name == r.User
	case rbacv1.GroupKind:
		return slices.Contains(r.Groups, x.Name)
	case rbacv1.ServiceAccountKind:
		if x.Namespace != "" {
			namespace = x.Namespace
		}
		return r.User == "system:serviceaccount:"+namespace+":"+x.Name
	}
	return false
}

func rulesOf(s *Snapshot, role Ref) ([]rbacv1.PolicyRule, Presence) {
	if role.Kind == "Role" {
		o, p := get[*rbacv1.Role](s, role.Namespace, role.Name)
		if p == Found {
			return o.Rules, p
		}
		return nil, p
	}
	o, p := get[*rbacv1.ClusterRole](s, "", role.Name)
	if p == Found {
		return o.Rules, p
	}
	return nil, p
}

// ableRoles lists the roles with a rule for the request, apart from those that allow everything.
func ableRoles(s *Snapshot, r Request) (out []string) {
	able := func(rules []rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
			return !slices.Contains(rule.Resources, "*") && !slices.Contains(rule.NonResourceURLs, "*") && covers(rule.Verbs, r.Verb) && coversRequest(rule, r)
		})
	}
	if r.Namespace != "" {
		roles, _ := list[*rbacv1.Role](s, r.Namespace)
		for _, o := range roles {
			if able(o.Rules) {
				out = append(out, refTo(o).String())
			}
		}
	}
	wide, _ := list[*rbacv1.ClusterRole](s, "")
	usual := []string{"view", "edit", "admin"}
	for _, name := range usual { // the least of upstream's roles for users first
		if i := slices.IndexFunc(wide, func(o *rbacv1.ClusterRole) bool { return o.Name == name }); i >= 0 && able(wide[i].Rules) {
			out = append(out, "clusterrole/"+name)
		}
	}
	for _, o := range wide {
		if !slices.Contains(usual, o.Name) && !strings.HasPrefix(o.Name, "system:") && able(o.Rules) {
			out = append(out, refTo(o).String())
		}
	}
	return out
}

func covers(list []string, value string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

// coversRequest reports whether a rule covers a request apart from its verb.
func coversRequest(rule rbacv1.PolicyRule, r Request) bool {
	if r.Path == "" {
		return coversResource(rule, r)
	}
	return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
		prefix, open := strings.CutSuffix(url, "*")
		return url == r.Path || open && strings.HasPrefix(r.Path, prefix)
	})
}

func coversResource(rule rbacv1.PolicyRule, r Request) bool {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	named := len(rule.ResourceNames) == 0 || r.Name != "" && slices.Contains(rule.ResourceNames, r.Name)
	return named && covers(rule.APIGroups, r.Group) && (covers(rule.Resources, resource) || r.Subresource != "" && slices.Contains(rule.Resources, "*/"+r.Subresource))
}

// forbidden matches the API server's message about a denied request.
var forbidden = regexp.MustCompile(`User "([^"]+)" cannot ([a-z]+) (?:resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)"| at the cluster scope)|path "([^"]+)")`)

var forbiddenName = regexp.MustCompile(`\S+ "([^"]+)" is forbidden: User "`)

// ParseForbidden reads the API server's message about a denied request. The groups of its user are
// not part of the message.
func ParseForbidden(message string) (Request, bool) {
	m := forbidden.FindStringSubmatch(oneLine(message))
	if m == nil {
		return Request{}, false
	}
	r := Request{User: m[1], Verb: m[2], Group: m[4], Namespace: m[5], Path: m[6]}
	r.Resource, r.Subresource, _ = strings.Cut(m[3], "/")
	if n := forbiddenName.FindStringSubmatch(oneLine(message)); n != nil && r.Path == "" {
		r.Name = n[1]
	}
	return r, true
}

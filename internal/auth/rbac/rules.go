package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// rule returns a PolicyRule from space-separated verbs, groups ("core" is the empty one) and
// resources.
func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	list := strings.Fields(groups)
	for i, g := range list {
		if g == core {
			list[i] = ""
		}
	}
	slices.Sort(list)
	return rbacv1.PolicyRule{Verbs: sorted(verbs), APIGroups: list, Resources: sorted(resources), ResourceNames: names}
}

func paths(verbs, urls string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: sorted(verbs), NonResourceURLs: sorted(urls)}
}

// sorted splits words and sorts them in the order in which upstream stores them.
func sorted(words string) []string {
	list := strings.Fields(words)
	slices.Sort(list)
	return list
}

// Allows reports whether the rule allows the request.
func Allows(r *rbacv1.PolicyRule, a *auth.Attributes) bool {
	if !has(r.Verbs, a.Verb) {
		return false
	}
	if !a.IsResource() {
		return slices.ContainsFunc(r.NonResourceURLs, func(pattern string) bool { return matchesPath(pattern, a.Path) })
	}
	return has(r.APIGroups, a.Group) && matchesResource(r.Resources, a.Resource, a.Subresource) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

func has(list []string, value string) bool {
	for _, v := range list {
		if v == "*" || v == value {
			return true
		}
	}
	return false
}

// matchesPath reports whether a path matches a pattern, which may end in an asterisk.
func matchesPath(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}

// matchesResource reports whether a rule covers the resource. "*" is everything, "pods/log" one
// subresource, and "*/scale" that subresource of every resource.
func matchesResource(rules []string, resource, subresource string) bool {
	for _, r := range rules {
		if r == "*" {
			return true
		}
		if subresource == "" {
			if r == resource {
				return true
			}
			continue
		}
		left, right, ok := strings.Cut(r, "/")
		if ok && right == subresource && (left == resource || left == "*") {
			return true
		}
	}
	return false
}

package architecture

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Grant is what one binding gives to a service account of a component.
type Grant struct {
	Account   string // namespace/name
	Binding   string // such as "RoleBinding shop/web"
	Role      string // such as "Role shop/web"
	Namespace string // in which the rules hold; "" means in all
	Rules     []rbacv1.PolicyRule
}

// readVerbs show objects; all other verbs of resources change something.
var readVerbs = []string{"get", "list", "watch"}

// secretive are the resources of the core group whose reads must be declared as data.
var secretive = []string{"secrets", "configmaps"}

// ExcessiveAccess returns, for each rule of the grants that goes beyond the component's data and
// access, a sentence that names it. Self reviews are left out: all users have them.
func (c *Component) ExcessiveAccess(grants []Grant) (sentences []string) {
	for _, g := range grants {
		for _, rule := range g.Rules {
			if len(rule.Resources) == 0 || selfReview(&rule) {
				continue
			}
			if excess := c.excess(&rule, g.Namespace); excess != "" {
				where := "in all namespaces"
				if g.Namespace != "" {
					where = "in namespace " + g.Namespace
				}
				sentences = append(sentences, fmt.Sprintf("service account %s may %s %s: %s gives it %s", g.Account, excess, where, g.Binding, g.Role))
			}
		}
	}
	slices.Sort(sentences)
	return slices.Compact(sentences)
}

func selfReview(rule *rbacv1.PolicyRule) bool {
	return !slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return group != "authorization.k8s.io" && group != "authentication.k8s.io"
	}) && !slices.ContainsFunc(rule.Resources, func(resource string) bool { return !strings.HasPrefix(resource, "self") })
}

// excess returns the verbs and resources of a rule that are not declared, or "".
func (c *Component) excess(rule *rbacv1.PolicyRule, namespace string) string {
	var verbs, resources []string
	note := func(list *[]string, value string) {
		if !slices.Contains(*list, value) {
			*list = append(*list, value)
		}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				reads := slices.Contains(readVerbs, verb)
				hidden := (group == "" || group == "*") && (resource == "*" || slices.Contains(secretive, resource))
				if reads && !hidden || c.declares(group, resource, verb, rule.ResourceNames, namespace) {
					continue
				}
				note(&verbs, verb)
				if group != "" && group != "*" {
					note(&resources, resource+"."+group)
				} else {
					note(&resources, resource)
				}
			}
		}
	}
	if len(verbs) == 0 {
		return ""
	}
	text := strings.Join(verbs, ", ") + " " + strings.Join(resources, ", ")
	if len(rule.ResourceNames) > 0 {
		text += " " + strings.Join(rule.ResourceNames, ", ")
	}
	return text
}

// declares reports whether data or access of the component cover a right.
func (c *Component) declares(group, resource, verb string, names []string, namespace string) bool {
	covers := func(list []string, value string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, value)
	}
	for _, a := range c.Spec.Access {
		if covers(a.APIGroups, group) && covers(a.Resources, resource) && covers(a.Verbs, verb) && subset(names, a.ResourceNames) {
			return true
		}
	}
	if group != "" || namespace != c.Namespace || len(names) == 0 || verb == "*" {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(c.Spec.Data, func(d Data) bool {
			own := map[string]string{"secrets": d.Secret, "configmaps": d.ConfigMap, "persistentvolumeclaims": d.Claim}[resource]
			return own == name && (d.Access == Write || slices.Contains(readVerbs, verb))
		})
	})
}

// subset reports whether the names of a rule are among those of a declaration; none means all.
func subset(names, declared []string) bool {
	if len(declared) == 0 {
		return true
	}
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(declared, name) })
}

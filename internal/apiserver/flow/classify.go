package flow

import (
	"hash/fnv"
	"slices"
	"strings"
	"sync/atomic"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/auth"
)

// Request is what a request is sorted by.
type Request = auth.Attributes

// schema is a FlowSchema with its level.
type schema struct {
	name      string
	uid       types.UID
	spec      flowcontrolv1.FlowSchemaSpec
	level     *level
	levelUID  types.UID
	shape     shapeOf // of the level
	served    atomic.Uint64
	live      *live     // kept when the schema is configured anew: requests under way hold on to it
	execution [2]series // in seconds: of other requests, and of watches until they have begun
	width     series
	wait      series // of those that got seats; nil, as length, where nothing waits
	length    series
	refusedBy [4]atomic.Uint64 // in the order of refusals
}

var refusals = [4]string{reasonConcurrency, reasonQueueFull, reasonTimeout, reasonCancelled}

func (s *schema) refused(reason string) {
	s.refusedBy[slices.Index(refusals[:], reason)].Add(1)
}

// live is what a schema's requests are doing.
type live struct {
	executing, waiting atomic.Int64 // requests
	inUse, wanted      atomic.Int64 // seats
}

// table are the schemas in the order in which they are tried.
type table struct {
	schemas []*schema
	levels  map[string]*level
}

// sortSchemas orders by precedence, then by name.
func sortSchemas(all []*flowcontrolv1.FlowSchema) {
	slices.SortFunc(all, func(a, b *flowcontrolv1.FlowSchema) int {
		if d := int(a.Spec.MatchingPrecedence) - int(b.Spec.MatchingPrecedence); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// find is the first schema that is for the request; the mandatory one at the end is for all.
func (t *table) find(r *Request) *schema {
	for _, s := range t.schemas {
		for i := range s.spec.Rules {
			if matches(&s.spec.Rules[i], r) {
				return s
			}
		}
	}
	return nil
}

func matches(rule *flowcontrolv1.PolicyRulesWithSubjects, r *Request) bool {
	if !slices.ContainsFunc(rule.Subjects, func(s flowcontrolv1.Subject) bool { return matchesSubject(&s, &r.User) }) {
		return false
	}
	if r.IsResource() {
		return slices.ContainsFunc(rule.ResourceRules, func(p flowcontrolv1.ResourcePolicyRule) bool { return matchesResource(&p, r) })
	}
	return slices.ContainsFunc(rule.NonResourceRules, func(p flowcontrolv1.NonResourcePolicyRule) bool {
		return anyOf(p.Verbs, r.Verb) && slices.ContainsFunc(p.NonResourceURLs, func(pattern string) bool { return matchesPath(pattern, r.Path) })
	})
}

func matchesSubject(s *flowcontrolv1.Subject, u *auth.User) bool {
	switch {
	case s.User != nil:
		return s.User.Name == "*" || s.User.Name == u.Name
	case s.Group != nil:
		return s.Group.Name == "*" || slices.Contains(u.Groups, s.Group.Name)
	case s.ServiceAccount != nil:
		namespace, name, ok := auth.SplitServiceAccount(u.Name)
		return ok && namespace == s.ServiceAccount.Namespace && (s.ServiceAccount.Name == "*" || name == s.ServiceAccount.Name)
	}
	return false
}

func anyOf(list []string, value string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

func matchesResource(p *flowcontrolv1.ResourcePolicyRule, r *Request) bool {
	if !anyOf(p.Verbs, r.Verb) || !anyOf(p.APIGroups, r.Group) {
		return false
	}
	resource := r.Resource
	if r.Subresource != "" && !slices.Contains(p.Resources, "*") {
		resource += "/" + r.Subresource
	}
	if !anyOf(p.Resources, resource) {
		return false
	}
	if r.Namespace == "" {
		return p.ClusterScope
	}
	return anyOf(p.Namespaces, r.Namespace)
}

// matchesPath: a pattern that ends with a slash and a star is for all below it.
func matchesPath(pattern, path string) bool {
	if pattern == "*" || pattern == path {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasSuffix(prefix, "/") && strings.HasPrefix(path, prefix)
}

// distinguisher is what tells the flows of a schema apart.
func (s *schema) distinguisher(r *Request) string {
	if d := s.spec.DistinguisherMethod; d != nil {
		switch d.Type {
		case flowcontrolv1.FlowDistinguisherMethodByUserType:
			return r.User.Name
		case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
			return r.Namespace
		}
	}
	return ""
}

// flowOf is the flow as a number.
func (s *schema) flowOf(r *Request) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.name))
	if s.spec.DistinguisherMethod != nil {
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(s.distinguisher(r)))
	}
	// FNV's high bits are weak for short texts; a hand is dealt from all of them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

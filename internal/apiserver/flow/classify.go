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

// Request is what schemas match a request by.
type Request = auth.Attributes

// schema is a FlowSchema with its level.
type schema struct {
	name     string
	uid      types.UID
	spec     flowcontrolv1.FlowSchemaSpec
	level    *level
	levelUID types.UID
	shape    levelShape // of the level
	served   atomic.Uint64
	// Kept when the schema is reconfigured, because requests in progress refer to it.
	inProgress *inProgress
	execution  [2]series // in seconds: of other requests, and of watches until they have begun
	width      series
	wait       series // of requests that got seats; nil, like length, if none can wait
	length     series
	refusedBy  [4]atomic.Uint64 // in the order of refusals
}

var refusals = [4]string{reasonConcurrency, reasonQueueFull, reasonTimeout, reasonCancelled}

func (s *schema) refused(reason string) {
	s.refusedBy[slices.Index(refusals[:], reason)].Add(1)
}

// inProgress counts a schema's requests in progress.
type inProgress struct {
	executing, waiting atomic.Int64 // requests
	inUse, wanted      atomic.Int64 // seats
}

// table holds the schemas in the order in which they are tried.
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

// find returns the first schema that matches the request; the mandatory last one matches all.
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

// matchesPath matches a path. A pattern that ends with "/*" matches all paths below.
func matchesPath(pattern, path string) bool {
	if pattern == "*" || pattern == path {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasSuffix(prefix, "/") && strings.HasPrefix(path, prefix)
}

// distinguisher returns the value that separates the flows of a schema.
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

// flowOf returns the flow as a number.
func (s *schema) flowOf(r *Request) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.name))
	if s.spec.DistinguisherMethod != nil {
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(s.distinguisher(r)))
	}
	// FNV's high bits are weak for short texts, but a hand is dealt from all bits.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

package audit

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/apis/audit/validation"

	"github.com/knarr-project/knarr/internal/auth"
)

// Policy decides how a request is recorded. The first matching rule decides; requests without a
// matching rule are not recorded.
type Policy struct {
	spec auditv1.Policy
	// StrictErr reports unknown and duplicate fields; nil if there are none. As upstream, they are
	// ignored.
	StrictErr error
}

var (
	scheme  = newScheme()
	codecs  = serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	lenient = serializer.NewCodecFactory(scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(auditinternal.AddToScheme(s))
	utilruntime.Must(auditv1.AddToScheme(s))
	return s
}

// LoadPolicy reads a policy file.
func LoadPolicy(path string) (*Policy, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	policy, err := ParsePolicy(data)
	if err != nil {
		return nil, fmt.Errorf("audit policy %s: %w", path, err)
	}
	return policy, nil
}

// ParsePolicy parses a policy in YAML or JSON.
func ParsePolicy(data []byte) (*Policy, error) {
	policy := &Policy{}
	decoded, _, err := codecs.UniversalDecoder(auditinternal.SchemeGroupVersion).Decode(data, nil, nil)
	if runtime.IsStrictDecodingError(err) {
		policy.StrictErr = err
		decoded, _, err = lenient.UniversalDecoder(auditinternal.SchemeGroupVersion).Decode(data, nil, nil)
	}
	if err != nil {
		return nil, err
	}
	internal, ok := decoded.(*auditinternal.Policy)
	if !ok {
		return nil, fmt.Errorf("kind %T, expected Policy of %s", decoded, auditv1.SchemeGroupVersion)
	}
	if err := validation.ValidatePolicy(internal).ToAggregate(); err != nil {
		return nil, err
	}
	if len(internal.Rules) == 0 {
		return nil, fmt.Errorf("no rules: at least one is needed")
	}
	return policy, scheme.Convert(internal, &policy.spec, nil)
}

// decision is a policy's decision on one request.
type decision struct {
	level             auditv1.Level
	omit              []auditv1.Stage
	omitManagedFields bool
}

func (p *Policy) decide(a *auth.Attributes) decision {
	for i := range p.spec.Rules {
		rule := &p.spec.Rules[i]
		if !matches(rule, a) {
			continue
		}
		d := decision{level: rule.Level, omit: append(slices.Clone(p.spec.OmitStages), rule.OmitStages...), omitManagedFields: p.spec.OmitManagedFields}
		if rule.OmitManagedFields != nil {
			d.omitManagedFields = *rule.OmitManagedFields
		}
		return d
	}
	return decision{level: auditv1.LevelNone}
}

func emptyOrContains(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

func matches(rule *auditv1.PolicyRule, a *auth.Attributes) bool {
	inGroup := len(rule.UserGroups) == 0 || slices.ContainsFunc(a.User.Groups, func(g string) bool { return slices.Contains(rule.UserGroups, g) })
	if !emptyOrContains(rule.Users, a.User.Name) || !inGroup || !emptyOrContains(rule.Verbs, a.Verb) {
		return false
	}
	switch {
	case len(rule.Resources) > 0 || len(rule.Namespaces) > 0:
		return a.IsResource() && matchesResource(rule, a)
	case len(rule.NonResourceURLs) > 0:
		return !a.IsResource() && slices.ContainsFunc(rule.NonResourceURLs, func(pattern string) bool { return matchesPath(pattern, a.Path) })
	}
	return true
}

func matchesPath(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}

func matchesResource(rule *auditv1.PolicyRule, a *auth.Attributes) bool {
	if !emptyOrContains(rule.Namespaces, a.Namespace) {
		return false
	}
	if len(rule.Resources) == 0 {
		return true
	}
	whole := a.Resource
	if a.Subresource != "" {
		whole += "/" + a.Subresource
	}
	for i := range rule.Resources {
		gr := &rule.Resources[i]
		if gr.Group != a.Group && gr.Group != "*" {
			continue
		}
		if len(gr.Resources) == 0 {
			return true
		}
		if !emptyOrContains(gr.ResourceNames, a.Name) {
			continue
		}
		for _, pattern := range gr.Resources {
			// "pods/log" is a subresource, "pods/*" all of pods, "*/status" that of all kinds,
			// "pods" the pods alone.
			resource, sub, _ := strings.Cut(pattern, "/")
			switch {
			case pattern == "*", pattern == whole:
				return true
			case sub == "*" && resource == a.Resource:
				return true
			case resource == "*" && sub != "" && sub == a.Subresource:
				return true
			}
		}
	}
	return false
}

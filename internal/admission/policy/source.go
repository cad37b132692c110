package policy

import (
	"context"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/client"
)

// Config configures both plugins.
type Config struct {
	// Client reads policies, bindings, parameters and namespaces.
	Client client.Interface
	Served admission.Served
	// Authorizer answers the authorization checks of expressions.
	Authorizer auth.Authorizer
	// Metrics count the decisions; nil: nothing shows them.
	Metrics *measure.Metrics
}

// rule holds the prepared fields that policies of both kinds share.
type rule struct {
	name       string
	failOpen   bool // failurePolicy Ignore
	paramKind  *admissionregistrationv1.ParamKind
	matcher    *admission.Matcher
	conditions *admission.Conditions
	bindings   []*binding
}

type binding struct {
	name    string
	params  *admissionregistrationv1.ParamRef
	matcher *admission.Matcher // nil matches everything
	actions []admissionregistrationv1.ValidationAction
}

func matcherOf(m *admissionregistrationv1.MatchResources) *admission.Matcher {
	if m == nil {
		return nil
	}
	rules := m.ResourceRules
	return admission.NewMatcher(admission.Criteria{Rules: rules, Except: m.ExcludeResourceRules, MatchPolicy: m.MatchPolicy,
		NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector})
}

// bindingMatcher returns a binding's matcher. Without rules, the binding narrows its policy by
// selectors alone.
func bindingMatcher(m *admissionregistrationv1.MatchResources) *admission.Matcher {
	if m == nil || len(m.ResourceRules) > 0 {
		return matcherOf(m)
	}
	all := *m
	all.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}}
	return matcherOf(&all)
}

func newRule(m *measure.Metrics, name string, kind *admissionregistrationv1.ParamKind, match *admissionregistrationv1.MatchResources,
	conditions []admissionregistrationv1.MatchCondition, failure *admissionregistrationv1.FailurePolicyType,
) rule {
	if match == nil {
		match = &admissionregistrationv1.MatchResources{}
	}
	return rule{
		name: name, paramKind: kind, matcher: matcherOf(match), failOpen: failure != nil && *failure == admissionregistrationv1.Ignore,
		conditions: admission.NewConditions(m, measure.Condition{Name: name, Kind: measure.KindPolicy, Type: measure.Validate}, conditions, cel.Scope{Params: kind != nil, Authorizer: true, Stored: true}),
	}
}

// source keeps the policies of one plugin prepared. P is the policy type, B the binding type, R the
// prepared policy.
type source[P, B client.Object, R any] struct {
	policies *client.Lazy[P]
	bindings *client.Lazy[B]
	prepare  func(P) R
	// bind returns a prepared policy with its bindings; bound returns a binding and its policy's
	// name.
	bind  func(R, []*binding) R
	bound func(B) (policy string, b *binding)
	// kinds returns the kind of a policy's parameters.
	kinds  func(R) *admissionregistrationv1.ParamKind
	params *params

	mu       sync.Mutex
	seenP    []client.Identity
	seenB    []client.Identity
	byObject map[client.Identity]R
	ordered  []R
}

// current returns the policies that have bindings, sorted by name.
func (s *source[P, B, R]) current() ([]R, error) {
	policies, err := s.policies.View()
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read admission policies: %w", err))
	}
	nowP := policies.List("", nil)
	if len(nowP) == 0 {
		return nil, nil
	}
	bindings, err := s.bindings.View()
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read bindings of admission policies: %w", err))
	}
	nowB := bindings.List("", nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if client.Same(s.seenP, nowP) && client.Same(s.seenB, nowB) {
		return s.ordered, nil
	}
	s.refresh(nowP, nowB)
	return s.ordered, nil
}

// refresh prepares new policies and keeps compiled ones. The caller holds s.mu.
func (s *source[P, B, R]) refresh(policies []P, bindings []B) {
	bound := map[string][]*binding{}
	for _, b := range bindings {
		policy, prepared := s.bound(b)
		bound[policy] = append(bound[policy], prepared)
	}
	kept := make(map[client.Identity]R, len(policies))
	s.seenP, s.seenB = client.Identities(policies), client.Identities(bindings)
	s.ordered = nil
	var used []admissionregistrationv1.ParamKind
	for _, p := range policies {
		id := client.IdentityOf(p)
		prepared, ok := s.byObject[id]
		if !ok {
			prepared = s.prepare(p)
		}
		kept[id] = prepared
		if of := bound[p.GetName()]; len(of) > 0 {
			s.ordered = append(s.ordered, s.bind(prepared, of))
			if kind := s.kinds(prepared); kind != nil {
				used = append(used, *kind)
			}
		}
	}
	s.byObject = kept
	s.params.keep(used)
}

// excluded reports whether policies ignore the write: it changes a policy, or it is a review, which
// asks the server a question and stores nothing.
func excluded(a *admission.Attributes) bool {
	if a.IsPolicyConfiguration() {
		return true
	}
	switch a.Resource.Group {
	case "authentication.k8s.io":
		return a.Resource.Resource == "selfsubjectreviews" || a.Resource.Resource == "tokenreviews"
	case "authorization.k8s.io":
		return true
	}
	return false
}

// write is a write in the forms that policies match. All policies share what one of them has read.
type write struct {
	*admission.Attributes
	config     *Config
	namespaces admission.Namespaces
	forms      map[admission.Form]*view
	namespace  func() (*corev1.Namespace, error)
}

type view struct {
	*admission.Versioned
	input cel.Input
}

func newWrite(ctx context.Context, a *admission.Attributes, config *Config, namespaces admission.Namespaces) *write {
	w := &write{Attributes: a, config: config, namespaces: namespaces, forms: map[admission.Form]*view{}}
	w.namespace = sync.OnceValues(func() (*corev1.Namespace, error) {
		if a.Resource.Group == "" && a.Resource.Resource == "namespaces" {
			return nil, nil
		}
		return namespaces.Of(ctx, a)
	})
	return w
}

// changed drops the forms after a change of the object.
func (w *write) changed() { clear(w.forms) }

func (w *write) in(form admission.Form) (*view, error) {
	if v, ok := w.forms[form]; ok {
		return v, nil
	}
	namespace, err := w.namespace()
	if err != nil {
		return nil, err
	}
	versioned, err := w.In(w.config.Served, form)
	if err != nil {
		return nil, err
	}
	v := &view{versioned, versioned.Expressions(w.config.Authorizer, func() *corev1.Namespace { return namespace })}
	w.forms[form] = v
	return v, nil
}

// match returns the write in the form that the rule matches; nil if it does not match.
func (r *rule) match(ctx context.Context, w *write) (*view, error) {
	form, ok, err := r.matcher.Matches(ctx, w.Attributes, w.config.Served, w.namespaces)
	if err != nil || !ok {
		return nil, err
	}
	return w.in(form)
}

// matches reports whether the binding matches the write.
func (b *binding) matches(ctx context.Context, w *write) (bool, error) {
	if b.matcher == nil {
		return true, nil
	}
	_, ok, err := b.matcher.Matches(ctx, w.Attributes, w.config.Served, w.namespaces)
	return ok, err
}

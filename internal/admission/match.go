package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/client"
)

// Matcher decides whether a webhook or policy handles a write. It is safe for concurrent use.
type Matcher struct {
	rules, except     []admissionregistrationv1.NamedRuleWithOperations
	equivalent        bool
	namespace, object labels.Selector
	// broken is the error of an invalid selector. Every write that the rules match fails with it.
	broken error
}

// Criteria are the API's fields that a Matcher is made of.
type Criteria struct {
	Rules, Except                     []admissionregistrationv1.NamedRuleWithOperations
	MatchPolicy                       *admissionregistrationv1.MatchPolicyType
	NamespaceSelector, ObjectSelector *metav1.LabelSelector
}

// NewMatcher prepares the criteria. A missing selector matches everything, unlike elsewhere in the
// API.
func NewMatcher(c Criteria) *Matcher {
	m := &Matcher{rules: c.Rules, except: c.Except, namespace: labels.Everything(), object: labels.Everything()}
	m.equivalent = c.MatchPolicy == nil || *c.MatchPolicy == admissionregistrationv1.Equivalent
	var err error
	if c.NamespaceSelector != nil {
		if m.namespace, err = metav1.LabelSelectorAsSelector(c.NamespaceSelector); err != nil {
			m.broken = err
		}
	}
	if c.ObjectSelector != nil {
		if m.object, err = metav1.LabelSelectorAsSelector(c.ObjectSelector); err != nil {
			m.broken = err
		}
	}
	return m
}

// Namespaces finds the namespace of a write.
type Namespaces struct {
	lazy *client.Lazy[*corev1.Namespace]
}

// NewNamespaces looks namespaces up through c, in a view that lives until ctx ends.
func NewNamespaces(ctx context.Context, c client.Interface) Namespaces {
	return Namespaces{client.NewLazy[*corev1.Namespace](ctx, c, nil)}
}

// Of returns the namespace of a write. For a write to a namespace, it is that namespace as stored.
// nil for cluster-scoped objects and for the creation of a namespace.
func (n Namespaces) Of(ctx context.Context, a *Attributes) (*corev1.Namespace, error) {
	name := a.Namespace
	if a.isNamespace() {
		if a.Operation == Create && a.Subresource == "" {
			return nil, nil
		}
		name = a.Name
	}
	if name == "" {
		return nil, nil
	}
	return n.lazy.Find(ctx, "", name)
}

func (a *Attributes) isNamespace() bool {
	return a.Resource.Group == "" && a.Resource.Resource == "namespaces"
}

// IsAdmissionConfiguration reports whether the write concerns the configuration of admission
// itself. Webhooks do not see such writes; otherwise a broken webhook could not be repaired.
func (a *Attributes) IsAdmissionConfiguration() bool {
	return a.Resource.Group == admissionregistrationv1.GroupName
}

// IsPolicyConfiguration reports whether the write concerns a policy or binding. Policies do not see
// such writes, for the same reason. Policies do see writes to webhook configurations, so they can
// restrict who adds a webhook.
func (a *Attributes) IsPolicyConfiguration() bool {
	return a.IsAdmissionConfiguration() && !strings.HasSuffix(a.Resource.Resource, "webhookconfigurations")
}

// Matches reports whether the write matches, and in which form.
func (m *Matcher) Matches(ctx context.Context, a *Attributes, served Served, namespaces Namespaces) (Form, bool, error) {
	form, ok := m.matchRules(a, m.rules, served)
	if !ok {
		return Form{}, false, nil
	}
	if m.broken != nil {
		return Form{}, false, m.broken
	}
	if _, excepted := m.matchRules(a, m.except, served); excepted {
		return Form{}, false, nil
	}
	if ok, err := m.matchNamespace(ctx, a, namespaces); !ok || err != nil {
		return Form{}, false, err
	}
	return form, m.matchObject(a), nil
}

func (m *Matcher) matchRules(a *Attributes, rules []admissionregistrationv1.NamedRuleWithOperations, served Served) (Form, bool) {
	own := a.Form()
	for i := range rules {
		if matchesRule(&rules[i], a, own) {
			return own, true
		}
	}
	if !m.equivalent || !slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool { return matchesBesidesForm(&r, a) }) {
		return Form{}, false
	}
	forms := served.Forms(a.Resource, a.Subresource)
	if len(forms) < 2 {
		return Form{}, false
	}
	for i := range rules {
		for _, form := range forms {
			if form.Resource != a.Resource && matchesRule(&rules[i], a, form) {
				return form, true
			}
		}
	}
	return Form{}, false
}

func matchesRule(r *admissionregistrationv1.NamedRuleWithOperations, a *Attributes, form Form) bool {
	return oneOf(r.APIGroups, form.Resource.Group) && oneOf(r.APIVersions, form.Resource.Version) && matchesResource(r.Resources, form.Resource.Resource, a.Subresource) &&
		matchesBesidesForm(r, a)
}

// matchesBesidesForm checks the criteria that are the same in all forms.
func matchesBesidesForm(r *admissionregistrationv1.NamedRuleWithOperations, a *Attributes) bool {
	if !slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool {
		return o == admissionregistrationv1.OperationAll || string(o) == string(a.Operation)
	}) {
		return false
	}
	if len(r.ResourceNames) > 0 && (a.Name == "" || !slices.Contains(r.ResourceNames, a.Name)) {
		return false
	}
	if r.Scope == nil {
		return true
	}
	ofCluster := a.Namespace == "" || a.isNamespace()
	switch *r.Scope {
	case admissionregistrationv1.ClusterScope:
		return ofCluster
	case admissionregistrationv1.NamespacedScope:
		return !ofCluster
	}
	return true
}

func oneOf(allowed []string, value string) bool {
	return slices.Contains(allowed, "*") || slices.Contains(allowed, value)
}

func matchesResource(allowed []string, resource, subresource string) bool {
	for _, r := range allowed {
		res, sub, _ := strings.Cut(r, "/")
		if (res == "*" || res == resource) && (sub == "*" || sub == subresource) {
			return true
		}
	}
	return false
}

// matchNamespace checks the namespace selector. Cluster-scoped objects always match. A namespace is
// matched by its own labels, the new ones if the write has an object.
func (m *Matcher) matchNamespace(ctx context.Context, a *Attributes, namespaces Namespaces) (bool, error) {
	if m.namespace.Empty() {
		return true, nil
	}
	if a.isNamespace() && a.Subresource == "" && a.Object != nil {
		acc, err := meta.Accessor(a.Object)
		if err != nil {
			return false, err
		}
		return m.namespace.Matches(labels.Set(acc.GetLabels())), nil
	}
	namespace, err := namespaces.Of(ctx, a)
	if err != nil {
		return false, fmt.Errorf("look up the namespace: %w", err)
	}
	return namespace == nil || m.namespace.Matches(labels.Set(namespace.Labels)), nil
}

// matchObject reports whether the selector matches the old or the new object. An object without
// metadata matches only the selector of everything.
func (m *Matcher) matchObject(a *Attributes) bool {
	if m.object.Empty() {
		return true
	}
	return hasLabels(a.Object, m.object) || hasLabels(a.OldObject, m.object)
}

func hasLabels(obj runtime.Object, selector labels.Selector) bool {
	if obj == nil {
		return false
	}
	acc, err := meta.Accessor(obj)
	return err == nil && selector.Matches(labels.Set(acc.GetLabels()))
}

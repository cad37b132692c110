package check

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/admission/policy"
	"github.com/knarr-project/knarr/internal/api/openapi"
)

// checkPolicyTypes compiles a policy's expressions for each built-in kind that it matches. The
// controller of the API server writes the same warnings to the policy's status.
func (r *run) checkPolicyTypes(o *object) {
	p, ok := o.hub.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if !ok || p.Spec.MatchConstraints == nil {
		return
	}
	var checked []policy.Kind
	for _, gvk := range r.matched(p) {
		s, err := openapi.Kind(gvk)
		if err != nil {
			continue // a kind without fields
		}
		if checked = append(checked, policy.Kind{GroupVersionKind: gvk, Schema: s}); len(checked) == policy.MaxChecked {
			break
		}
	}
	warnings, err := policy.CheckTypes(p, checked, nil)
	if err != nil {
		o.fail("spec", err.Error())
		return
	}
	for _, w := range warnings {
		o.note(Warning, w.FieldRef, strings.Join(strings.Fields(w.Warning), " "))
	}
}

// matched returns the built-in kinds that a policy names, sorted. Wildcards match too much.
func (r *run) matched(p *admissionregistrationv1.ValidatingAdmissionPolicy) (list []schema.GroupVersionKind) {
	for _, rule := range p.Spec.MatchConstraints.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, version := range rule.APIVersions {
				for _, resource := range rule.Resources {
					k, ok := r.kinds.byResource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
					if ok && k.custom == nil && !slices.Contains(list, k.gvk) {
						list = append(list, k.gvk)
					}
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}

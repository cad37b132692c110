package policy

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
)

// without serves no kind.
type without struct{ builtin }

func (without) ByKind(schema.GroupVersionKind) (schema.GroupVersionResource, bool, bool) {
	return schema.GroupVersionResource{}, false, false
}

func TestAFailedMatchFollowsTheFailurePolicy(t *testing.T) {
	match := &admissionregistrationv1.MatchResources{
		ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Nearly"}}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
		}}},
	}
	p := &Mutating{config: Config{Served: without{}}}
	p.params = newParams(t.Context(), &p.config)
	a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Object: &corev1.ConfigMap{}}
	for _, failure := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail} {
		r := &mutatingRule{rule: newRule(measure.New(), "p", &admissionregistrationv1.ParamKind{APIVersion: "x.io/v1", Kind: "Missing"}, match, nil, &failure)}
		err := p.apply(t.Context(), r, newWrite(t.Context(), a, &p.config, p.namespaces), nil)
		if failure == admissionregistrationv1.Ignore {
			if err != nil {
				t.Errorf("with Ignore: %v", err)
			}
			continue
		}
		if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), `policy "p" denied request: "Nearly" is not a valid`) {
			t.Errorf("with Fail: %v", err)
		}
	}
}

func TestARefusalNamesTheObjectIfItHasAName(t *testing.T) {
	o := &outcome{denied: []decision{{policy: "p", message: "no"}}}
	for want, a := range map[string]*admission.Attributes{
		// From a deleted collection.
		`configmaps "Unknown" is forbidden: `: {OldObject: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}},
		`configmaps "some-" is forbidden: `:   {Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "some-"}}},
		`configmaps "one" is forbidden: `:     {Name: "one"},
	} {
		a.Resource = corev1.SchemeGroupVersion.WithResource("configmaps")
		if err := o.deny(a); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

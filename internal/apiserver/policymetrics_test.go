package apiserver

import (
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/client"
)

// policyCounts returns the samples of the policies' counters: "policy binding error_type
// enforcement_action" and count.
func policyCounts(t *testing.T, m *measure.Metrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if !strings.HasSuffix(f.GetName(), "_admission_policy_check_total") {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			counts[strings.TrimSpace(labels["policy"]+" "+labels["error_type"]+" "+labels["enforcement_action"])] += m.GetCounter().GetValue()
		}
	}
	return counts
}

// ignoring is a mutating policy with reinvocationPolicy IfNeeded or Never whose errors are ignored,
// with its binding.
func ignoring(t *testing.T, c client.Interface, name string, again admissionregistrationv1.ReinvocationPolicyType, mutations ...admissionregistrationv1.Mutation) {
	t.Helper()
	open := admissionregistrationv1.Ignore
	mustCreate(t, c, &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: named("", "v1", "configmaps"), ReinvocationPolicy: again, FailurePolicy: &open, Mutations: mutations}})
	mustCreate(t, c, &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}})
}

// TestPolicyMetricsAreUpstreams: the counts are those of upstream's API server v1.36.3 for
// the same policies.
func TestPolicyMetricsAreUpstreams(t *testing.T) {
	m := measure.New()
	c := newMeasuredPolicyServer(t, m)
	open := admissionregistrationv1.Ignore
	const broken = "object.data.nope == 'x'"
	conditions := []admissionregistrationv1.MatchCondition{{Name: "a", Expression: broken}}
	for name, spec := range map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{
		"v-ok":        {Validations: []admissionregistrationv1.Validation{{Expression: "true"}}},
		"v-deny":      {Validations: []admissionregistrationv1.Validation{{Expression: "false"}, {Expression: "1 > 2"}}},
		"v-err":       {Validations: []admissionregistrationv1.Validation{{Expression: broken}}},
		"v-ignore":    {Validations: []admissionregistrationv1.Validation{{Expression: broken}}, FailurePolicy: &open},
		"v-cond":      {Validations: []admissionregistrationv1.Validation{{Expression: "true"}}, MatchConditions: conditions},
		"v-cond-open": {Validations: []admissionregistrationv1.Validation{{Expression: "true"}}, MatchConditions: conditions, FailurePolicy: &open},
	} {
		spec.MatchConstraints = named("", "v1", "configmaps")
		mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
		mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn, admissionregistrationv1.Audit}}})
	}
	ignoring(t, c, "m-two", admissionregistrationv1.NeverReinvocationPolicy,
		jsonPatch("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'m': 'v'}}]"), jsonPatch("[JSONPatch{op: 'add', path: object.data.nope, value: 'v'}]"))
	before := policyCounts(t, m)
	if made := mustCreate(t, c, configMap("one")); made.Labels["m"] != "v" {
		t.Errorf("the changes before the failed mutation are lost: %v", made.ObjectMeta)
	}
	got := policyCounts(t, m)
	maps.DeleteFunc(got, func(key string, n float64) bool { return n == before[key] })
	for key := range got {
		got[key] -= before[key]
	}
	want := map[string]float64{
		"v-deny invalid_error warn": 2, "v-deny invalid_error audit": 2, "v-err invalid_error warn": 1, "v-err invalid_error audit": 1, "v-ignore invalid_error allow": 1,
		"v-cond invalid_error warn": 1, "v-cond invalid_error audit": 1, "m-two no_error": 1, "m-two invalid_error": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestChangesOfAFailingPolicyAreSeenByOthers(t *testing.T) {
	c := newPolicyServer(t)
	ignoring(t, c, "a", admissionregistrationv1.IfNeededReinvocationPolicy, apply("has(object.data.late) ? Object{data: {'seen': object.data.late}} : Object{}"))
	ignoring(t, c, "b", admissionregistrationv1.NeverReinvocationPolicy, apply("Object{data: {'late': 'yes'}}"), jsonPatch("[JSONPatch{op: 'add', path: object.data.nope, value: 'v'}]"))
	if made := mustCreate(t, c, configMap("one")); made.Data["seen"] != "yes" {
		t.Errorf("the first policy did not see the second one's changes: %v", made.Data)
	}
}

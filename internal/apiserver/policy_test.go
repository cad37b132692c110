package apiserver

import (
	"errors"
	"maps"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/admission/policy"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// newPolicyServer is an API server with only policies in its admission chain.
func newPolicyServer(t *testing.T) client.Interface {
	t.Helper()
	return newMeasuredPolicyServer(t, measure.New())
}

func newMeasuredPolicyServer(t *testing.T, m *measure.Metrics) client.Interface {
	t.Helper()
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	config := policy.Config{Client: c, Served: s.Served(), Authorizer: allowAll{}, Metrics: m}
	s.Use(Security{Authorizer: allowAll{}, Admission: admission.NewChain(nil, policy.NewMutating(t.Context(), config), policy.NewValidating(t.Context(), config))})
	if _, err := client.Create(t.Context(), c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"env": "prod"}}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func named(group, version string, resources ...string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}}}}
}

func mustCreate[T client.Object](t *testing.T, c client.Interface, obj T) T {
	t.Helper()
	made, err := client.Create(t.Context(), c, obj)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func withData(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
}

func TestValidatingPolicyRefusesInUpstreamsWords(t *testing.T) {
	c := newPolicyServer(t)
	forbidden, large := metav1.StatusReasonForbidden, metav1.StatusReasonRequestEntityTooLarge
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, MatchConstraints: named("", "v1", "configmaps"),
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "object.metadata.name.startsWith('t')"}},
		Variables:       []admissionregistrationv1.Variable{{Name: "x", Expression: "object.data.x"}},
		Validations: []admissionregistrationv1.Validation{
			{Expression: "variables.x != '1'"}, {Expression: "variables.x != '2'", Message: "two"},
			{Expression: "variables.x != '3'", MessageExpression: "'three ' + variables.x", Reason: &forbidden},
			{Expression: "variables.x != '4'", MessageExpression: "string(object.nothing)", Message: "four", Reason: &large},
			{Expression: "variables.x != '5' || object.data.nothing == 'a'"}, {Expression: "variables.x != '6' || params.data.a == 'b'"},
			{Expression: "variables.x != '7' || namespaceObject.metadata.labels.env == 'test'"},
		},
	}})
	allow := admissionregistrationv1.AllowAction
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "p", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		ParamRef: &admissionregistrationv1.ParamRef{Name: "par", Namespace: "default", ParameterNotFoundAction: &allow}}})
	if _, err := client.Create(t.Context(), c, withData("t1", map[string]string{"x": "1"})); err != nil {
		t.Errorf("without the optional parameter: %v", err)
	}
	mustCreate(t, c, withData("par", map[string]string{"a": "c"}))
	const refused = `configmaps "t" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: `
	for _, test := range []struct {
		x, text string
		reason  metav1.StatusReason
		code    int32
	}{
		{"0", "", "", 0},
		{"1", "failed expression: variables.x != '1'", metav1.StatusReasonInvalid, 422},
		{"2", "two", metav1.StatusReasonInvalid, 422},
		{"3", "three 3", metav1.StatusReasonForbidden, 403},
		{"4", "four", metav1.StatusReasonRequestEntityTooLarge, 413},
		{"5", "expression 'variables.x != '5' || object.data.nothing == 'a'' resulted in error: no such key: nothing", metav1.StatusReasonInvalid, 422},
		{"6", "failed expression: variables.x != '6' || params.data.a == 'b'", metav1.StatusReasonInvalid, 422},
		{"7", "failed expression: variables.x != '7' || namespaceObject.metadata.labels.env == 'test'", metav1.StatusReasonInvalid, 422},
	} {
		_, err := client.Create(t.Context(), c, withData("t", map[string]string{"x": test.x}))
		var status *apierrors.StatusError
		if test.text == "" {
			if err != nil {
				t.Error(err)
			}
			_ = client.Delete[*corev1.ConfigMap](t.Context(), c, "default", "t", metav1.DeleteOptions{})
			continue
		}
		if !errors.As(err, &status) || status.ErrStatus.Message != refused+test.text || status.ErrStatus.Reason != test.reason || status.ErrStatus.Code != test.code {
			t.Errorf("%s gives %+v", test.x, err)
		}
	}
	if _, err := client.Create(t.Context(), c, withData("unmatched", map[string]string{"x": "1"})); err != nil {
		t.Errorf("an object that no condition matches is refused: %v", err)
	}
}

func TestBindingsSelectAndRequireParameters(t *testing.T) {
	c := newPolicyServer(t)
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Secret"}, MatchConstraints: named("", "v1", "configmaps"),
		Validations: []admissionregistrationv1.Validation{{Expression: "object.metadata.name != params.metadata.name", MessageExpression: "'refused by ' + params.kind + ' ' + params.metadata.name"}},
	}})
	deny := admissionregistrationv1.DenyAction
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "p", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		ParamRef: &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"use": "yes"}}, ParameterNotFoundAction: &deny}}})
	_, err := client.Create(t.Context(), c, configMap("one"))
	wantError(t, err, "denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction")
	for _, name := range []string{"one", "two"} {
		mustCreate(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"use": "yes"}}})
	}
	mustCreate(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "three"}})
	_, err = client.Create(t.Context(), c, configMap("two"))
	wantError(t, err, "refused by Secret two")
	mustCreate(t, c, configMap("three"))
}

func TestPolicyWarningsAllowTheWrite(t *testing.T) {
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	p := policy.NewValidating(t.Context(), policy.Config{Client: c, Served: s.Served(), Authorizer: allowAll{}})
	mustCreate(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: named("", "v1", "configmaps"), Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "never"}},
		AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "name", ValueExpression: "'it is ' + object.metadata.name"}, {Key: "not", ValueExpression: "null"},
			{Key: "long", ValueExpression: "'  ' + ['" + strings.Repeat("x", 2<<10) + "'].map(s, s + s + s + s + s)[0] + 'x'"}},
	}})
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "p", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn, admissionregistrationv1.Audit}}})
	var warnings []string
	annotations := map[string]string{}
	a := &admission.Attributes{User: auth.Component("tester"), Operation: admission.Create, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "default", Name: "one", Object: configMap("one"),
		Warn: func(text string) { warnings = append(warnings, text) }, Annotate: func(key, value string) { annotations[key] = value }}
	if err := p.Validate(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || warnings[0] != "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': never" {
		t.Errorf("the warnings are %q", warnings)
	}
	want := map[string]string{"p/name": "it is one", "p/long": strings.Repeat("x", 10<<10), "validation.policy.admission.k8s.io/validation_failure": `[{"message":"never","policy":"p","binding":"b","expressionIndex":0,"validationActions":["Warn","Audit"]}]`}
	if !maps.Equal(annotations, want) {
		t.Errorf("the audit annotations are %v", annotations)
	}
}

func mutatingPolicy(t *testing.T, c client.Interface, mutations ...admissionregistrationv1.Mutation) {
	t.Helper()
	match := named("*", "*", "configmaps", "deployments")
	mustCreate(t, c, &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: match, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Variables: []admissionregistrationv1.Variable{{Name: "v", Expression: "object.metadata.name"}}, Mutations: mutations,
	}})
	mustCreate(t, c, &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "mb"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "m"}})
}

func apply(expression string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression}}
}

func jsonPatch(expression string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression}}
}

func TestMutatingPolicyChangesObjects(t *testing.T) {
	c := newPolicyServer(t)
	mutatingPolicy(t, c,
		apply("has(object.data) ? Object{data: {'m': 'apply ' + variables.v}} : Object{}"),
		jsonPatch(`has(object.data) ? [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}, JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('a/b'), value: object.data.m + '!'}, JSONPatch{op: 'add', path: '/metadata/labels', value: Object.metadata.labels{a: 'b'}}] : []`),
		jsonPatch(`variables.v == 'remove' ? [JSONPatch{op: 'remove', path: '/data/none'}] : variables.v == 'test' ? [JSONPatch{op: 'test', path: '/metadata/name', value: 'z'}] : []`),
		apply("object.kind == 'Deployment' ? Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a':'b'}}}} : Object{}"))
	made := mustCreate(t, c, configMap("one"))
	if want := map[string]string{"a": "1", "m": "apply one"}; !maps.Equal(made.Data, want) || made.Labels["a"] != "b" || made.Annotations["a/b"] != "apply one!" {
		t.Errorf("the mutated object has %v, %v", made.Data, made.ObjectMeta)
	}
	mustCreate(t, c, configMap("test"))
	_, err := client.Create(t.Context(), c, configMap("remove"))
	wantError(t, err, "policy 'm' with binding 'mb' denied request: JSON Patch: error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value")
	labels := map[string]string{"a": "c"}
	_, err = client.Create(t.Context(), c, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}})
	wantError(t, err, "policy 'm' with binding 'mb' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector")
}

func TestPoliciesDoNotApplyToPolicies(t *testing.T) {
	c := newPolicyServer(t)
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: named("*", "*", "*"), Validations: []admissionregistrationv1.Validation{{Expression: "false"}}}})
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "p", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}})
	if _, err := client.Create(t.Context(), c, configMap("one")); err == nil {
		t.Fatal("the policy is not in effect")
	}
	if err := client.Delete[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t.Context(), c, "", "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, c, configMap("one"))
}

func TestPolicyWithUnknownParamKindRefusesEveryWrite(t *testing.T) {
	c := newPolicyServer(t)
	missing := &admissionregistrationv1.ParamKind{APIVersion: "x.io/v1", Kind: "Missing"}
	nothing := &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"never": "so"}}}
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: missing, MatchConstraints: named("", "v1", "configmaps"), Validations: []admissionregistrationv1.Validation{{Expression: "params == null"}}}})
	mustCreate(t, c, &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind: missing, MatchConstraints: named("", "v1", "secrets"), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: "Object{}"}}}}})
	write := func() (validated, mutated error) {
		_, validated = client.Create(t.Context(), c, withData("x", nil))
		_, mutated = client.Create(t.Context(), c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}})
		return validated, mutated
	}
	if validated, mutated := write(); validated != nil || mutated != nil {
		t.Fatalf("without bindings: %v, %v", validated, mutated)
	}
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "v", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}, MatchResources: nothing}})
	mustCreate(t, c, &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "m", MatchResources: nothing}})
	validated, mutated := write()
	const why = "denied request: failed to configure policy: failed to find resource referenced by paramKind: 'x.io/v1, Kind=Missing'"
	if want := `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'v' ` + why; validated == nil || validated.Error() != want {
		t.Errorf("%v, want %s", validated, want)
	}
	if want := `policy "m" ` + why; mutated == nil || mutated.Error() != want || !apierrors.IsForbidden(mutated) {
		t.Errorf("%v, want %s", mutated, want)
	}
}

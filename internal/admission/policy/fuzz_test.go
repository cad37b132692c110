package policy

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/cel"
)

// builtin serves the built-in kinds without conversion.
type builtin struct{ admission.Served }

func (builtin) TypeConverter(schema.GroupVersionResource) (managedfields.TypeConverter, error) {
	return applyconfigurations.NewTypeConverter(api.Scheme), nil
}

// FuzzMutations runs random mutations. Each expression must be refused, fail, or result in a pod.
func FuzzMutations(f *testing.F) {
	for _, expression := range []string{
		`Object{spec: Object.spec{hostname: object.metadata.name}}`, `Object{metadata: Object.metadata{labels: {"a": "b"}}}`, `Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", image: "j"}]}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", resources: Object.spec.containers.resources{limits: {"cpu": "1e3"}}}]}}`, `Object{}`, `Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: "a"}]}}`,
	} {
		f.Add(true, expression, "'a'")
	}
	for _, expression := range []string{
		`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a/b"), value: variables.v}]`, `[JSONPatch{op: "test", path: "/spec/x", value: null}, JSONPatch{op: "remove", path: ""}]`,
		`[JSONPatch{op: "copy", from: "/spec", path: "/metadata/annotations"}]`, `[JSONPatch{op: "replace", path: "/spec/containers/-1", value: Object.spec.containers{name: "d"}}]`, `has(object.x) ? [JSONPatch{op: "add", path: "/spec", value: {"a": [1, 2.5, b'x', duration('1s')]}}] : []`,
	} {
		f.Add(false, expression, "object.metadata.name")
	}
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	input := cel.Input{Object: cel.OfObject(pod), OldObject: cel.OfObject(nil), Namespace: cel.OfNamespace(func() *corev1.Namespace { return nil }),
		Request: cel.OfRequest(func() *admissionv1.AdmissionRequest {
			return &admissionv1.AdmissionRequest{Operation: admissionv1.Create}
		})}
	f.Fuzz(func(t *testing.T, apply bool, expression, variable string) {
		if len(expression)+len(variable) > 4096 {
			return
		}
		policy := &admissionregistrationv1.MutatingAdmissionPolicySpec{Variables: []admissionregistrationv1.Variable{{Name: "v", Expression: variable}}}
		policy.Mutations = []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression}}}
		if apply {
			policy.Mutations = []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression}}}
		}
		m, err := compileMutations(measure.New(), policy)
		if err != nil {
			return
		}
		value, err := m.compiler.Evaluate(t.Context(), input, 100_000).Eval(m.steps[0].Program)
		if err != nil {
			return
		}
		form := admission.Form{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: corev1.SchemeGroupVersion.WithKind("Pod")}
		out, err := m.steps[0].change(value, &admission.Versioned{Attributes: &admission.Attributes{}, Form: form, Object: pod}, builtin{})
		if err != nil || out == nil {
			return
		}
		if _, ok := out.(*corev1.Pod); !ok {
			t.Errorf("%s makes a %T of a pod", expression, out)
		}
	})
}

// FuzzTypes type-checks random policies. It must report warnings, never an error.
func FuzzTypes(f *testing.F) {
	f.Add("object.spec.replicas > 1", "'it is ' + string(object.spec.replicas)", "object.metadata.name")
	f.Add("variables.v == object.nothing", "object.spec", "[1].map(x, x)")
	f.Add("params.a.b", "params", "variables.v")
	kinds := []Kind{{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Schema: fuzzedSchema()}, {}}
	f.Fuzz(func(t *testing.T, expression, message, variable string) {
		if len(expression)+len(message)+len(variable) > 4096 {
			return
		}
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			Variables:   []admissionregistrationv1.Variable{{Name: "v", Expression: variable}},
			Validations: []admissionregistrationv1.Validation{{Expression: expression, MessageExpression: message}}}}
		if _, err := CheckTypes(p, kinds, nil); err != nil {
			t.Errorf("%q, %q, %q: %v", expression, message, variable, err)
		}
	})
}

func fuzzedSchema() *spec.Schema {
	object := func(properties map[string]spec.Schema) spec.Schema {
		s := spec.MapProperty(nil)
		s.AdditionalProperties, s.Properties = nil, properties
		return *s
	}
	s := object(map[string]spec.Schema{
		"metadata": object(map[string]spec.Schema{"name": *spec.StringProperty(), "labels": *spec.MapProperty(spec.StringProperty())}),
		"spec":     object(map[string]spec.Schema{"replicas": *spec.Int32Property(), "list": *spec.ArrayProperty(spec.StringProperty())}),
	})
	return &s
}

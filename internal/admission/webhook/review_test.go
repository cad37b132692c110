package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/api"
)

func TestAnswersFollowTheRulesOfTheirVersion(t *testing.T) {
	const patched, typed = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","patch":"W10="}}`,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","patchType":"JSONPatch"}}`
	for _, test := range []struct{ name, version, body, err, validating string }{
		{"allowed", "v1", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true}}`, "", ""},
		{"YAML", "v1", "kind: AdmissionReview\napiVersion: admission.k8s.io/v1\nresponse: {uid: u}\n", "", ""},
		{"without a kind", "v1", `{"response":{"uid":"u"}}`, "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=", "the same"},
		{"no response", "v1", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, "webhook response was absent", "the same"},
		{"null", "v1", `null`, "webhook response was absent", "the same"},
		{"another version", "v1", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"uid":"u"}}`,
			"converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion", "the same"},
		{"a Status", "v1", `{"kind":"Status","apiVersion":"v1","status":"Success"}`, "converting (v1.Status) to (v1.AdmissionReview): unknown conversion", "the same"},
		{"an answer to another request", "v1", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"x"}}`, `expected response.uid="u", got "x"`, "the same"},
		{"a field name in another case", "v1", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"UID":"u"}}`, `expected response.uid="u", got ""`, "the same"},
		{"a patch without type", "v1", patched, "webhook returned response.patch but not response.patchType", "validating webhook may not return response.patch"},
		{"a type without patch", "v1", typed, "webhook returned response.patchType but not response.patch", "validating webhook may not return response.patchType"},
		{"a patch of the empty type", "v1", strings.Replace(typed, `"JSONPatch"`, `"","patch":"W10="`, 1), `webhook returned invalid response.patchType of ""`, "validating webhook may not return response.patch"},
		{"v1beta1 is not strict", "v1beta1", `{"response":{"allowed":true,"patch":"W10="}}`, "", ""},
		{"v1beta1 without response", "v1beta1", `{}`, "webhook response was absent", "the same"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, mutating := range []bool{true, false} {
				want := test.err
				if !mutating && test.validating != "the same" {
					want = test.validating
				}
				if _, err := read([]byte(test.body), test.version, mutating); text(err) != want {
					t.Errorf("mutating %v: the error is %q, want %q", mutating, text(err), want)
				}
			}
		})
	}
	if a, err := read([]byte(`{"response":{"allowed":true,"patch":"W10="}}`), "v1beta1", false); err != nil || a.patch != nil {
		t.Errorf("a patch that a validating webhook of v1beta1 sends is %q, %v", a.patch, err)
	}
}

// read decodes a response to the request "u".
func read(body []byte, version string, mutating bool) (*answer, error) {
	review, err := newReview(version, body, func(into runtime.Object) error {
		_, _, err := codec.Decode(body, nil, into)
		return err
	})
	if err != nil {
		return nil, err
	}
	return readAnswer(review, version, "u", mutating)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestEveryRefusalIsAnError(t *testing.T) {
	h := &hook{name: "a.b.c"}
	for _, test := range []struct {
		result *metav1.Status
		text   string
		code   int32
	}{
		{nil, `admission webhook "a.b.c" denied the request without explanation`, 400},
		{&metav1.Status{Code: 200, Status: "Success", Message: "no"}, `admission webhook "a.b.c" denied the request: no`, 400},
		{&metav1.Status{Code: 1000}, `admission webhook "a.b.c" denied the request without explanation`, 500},
		{&metav1.Status{Code: 418, Reason: "Teapot"}, `admission webhook "a.b.c" denied the request: Teapot`, 418},
	} {
		err := h.refusal(test.result)
		status := err.(interface{ Status() metav1.Status })
		if s := status.Status(); s.Message != test.text || s.Code != test.code || s.Status != metav1.StatusFailure {
			t.Errorf("%v gives %+v", test.result, s)
		}
	}
}

func TestAWebhookWithSideEffectsRefusesDryRuns(t *testing.T) {
	some := admissionregistrationv1.SideEffectClassSome
	h := newHook(measure.Mutating, "c", 0, &admissionregistrationv1.MutatingWebhook{Name: "a.b.c", SideEffects: &some, Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}}}}}, &Config{Metrics: measure.New()})
	for dryRun, want := range map[bool]string{true: `admission webhook "a.b.c" does not support dry run`, false: ""} {
		a := &admission.Attributes{Operation: admission.Delete, DryRun: dryRun}
		if _, err := h.match(t.Context(), newHookWrite(a, &Config{}), admission.Namespaces{}); text(err) != want {
			t.Errorf("dry run %v gives %v", dryRun, err)
		}
	}
}

func TestPatchAndAnnotationsOfAnAnswerAreLimited(t *testing.T) {
	obj := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"a": "b"}}
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	e := &encoded{Versioned: &admission.Versioned{Attributes: &admission.Attributes{Operation: admission.Create}, Form: admission.Form{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, Object: obj}, object: raw}
	test := `{"op":"test","path":"/data/a","value":"b"}`
	deep := `[{"op":"add","path":"/x","value":` + strings.Repeat(`{"a":`, 5000) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", 5000) + `}]`
	for patch, want := range map[string]string{
		`[` + strings.Repeat(test+",", 9999) + test + `]`:  "",
		`[` + strings.Repeat(test+",", 10000) + test + `]`: "the allowed maximum operations in a JSON patch is 10000, got 10001",
		deep: "nested too deep for its size",
	} {
		operations, err := api.DecodeJSONPatch([]byte(patch))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := patched(e, operations); (err == nil) != (want == "") || !strings.Contains(text(err), want) {
			t.Errorf("%.100s: %v", patch, err)
		}
	}
	told := map[string]string{}
	var warned []string
	(&hook{name: "a.b.c"}).report(&answer{annotations: map[string]string{"k": "v", "a/b": "c", "bad key!": "2", "": "empty", strings.Repeat("x", 64): "long"}, warnings: []string{"", "one"}},
		&hookWrite{Attributes: &admission.Attributes{Annotate: func(k, v string) { told[k] = v }, Warn: func(w string) { warned = append(warned, w) }}})
	if len(told) != 1 || told["a.b.c/k"] != "v" || len(warned) != 1 || warned[0] != "one" {
		t.Errorf("annotations %v, warnings %q", told, warned)
	}
	for n, want := range map[int]int{0: 0, 1000: 1000, 1001: 0} {
		noted := 0
		s := &hookWrite{Attributes: &admission.Attributes{Annotate: func(string, string) { noted++ }}}
		a := &answer{annotations: map[string]string{}}
		for i := range n {
			a.annotations[fmt.Sprint(i)] = "x"
		}
		if (&hook{name: "a.b.c"}).report(a, s); noted != want {
			t.Errorf("%d of %d annotations are noted", noted, n)
		}
	}
}

func TestYAMLAnswersWithExcessiveAliasesAreRefused(t *testing.T) {
	answer := func(n int) []byte {
		return []byte("kind: AdmissionReview\napiVersion: admission.k8s.io/v1\nresponse:\n  uid: u\n  allowed: true\n  warnings: [&a " + strings.Repeat("x", 1<<20) + strings.Repeat(", *a", n) + "]\n")
	}
	if a, err := read(answer(2), "v1", false); err != nil || len(a.warnings) != 3 {
		t.Error(a, err)
	}
	if _, err := read(answer(100_000), "v1", false); !strings.Contains(text(err), "excessive aliasing") {
		t.Error(err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2RhdGEifV0="}}`))
	f.Add([]byte(`{"response":{"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYiIsInZhbHVlIjoxfV0="}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, version := range []string{"v1", "v1beta1"} {
			a, err := read(body, version, true)
			if err != nil {
				continue
			}
			kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
			obj := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"a": "b"}}
			raw, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			e := &encoded{Versioned: &admission.Versioned{Attributes: &admission.Attributes{Operation: admission.Create}, Form: admission.Form{Kind: kind}, Object: obj}, object: raw}
			if operations, err := api.DecodeJSONPatch(a.patch); err == nil {
				_, _ = patched(e, operations)
			}
		}
	})
}

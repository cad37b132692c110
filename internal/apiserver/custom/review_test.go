package custom

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestConversionResponsesAreCheckedAgainstTheRequest(t *testing.T) {
	const good = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[{}]}}`
	long := good + strings.Repeat(" ", maxUncounted)
	for _, test := range []struct{ name, version, body, err string }{
		{"a good answer", "v1", good, ""},
		{"an answer in YAML", "v1", "apiVersion: apiextensions.k8s.io/v1\nkind: ConversionReview\nresponse: {uid: u, result: {status: Success}, convertedObjects: [{}]}\n", ""},
		{"an answer to another request", "v1", strings.Replace(good, `"u"`, `"x"`, 1), `expected response.uid="u", got "x"`},
		{"an answer of another version", "v1", strings.Replace(good, "/v1", "/v1beta1", 1), "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion"},
		{"an answer without a kind", "v1", strings.Replace(good, `"kind":"ConversionReview",`, "", 1), "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind="},
		{"an answer without a response", "v1", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`, "no response provided"},
		{"a failure", "v1", strings.Replace(good, `"Success"`, `"Failure","message":"no"`, 1), "no"},
		{"a failure without a message", "v1", strings.Replace(good, `"Success"`, `"Failure"`, 1), "response.result.status was 'Failure', not 'Success'"},
		{"an answer without a result", "v1", strings.Replace(good, `"result":{"status":"Success"},`, "", 1), "response.result.status was '', not 'Success'"},
		{"as many objects as allowed", "v1", strings.Replace(long, "[{}]", "[{}"+strings.Repeat(",{}", maxObjects-1)+"]", 1), ""},
		{"more objects than allowed", "v1", strings.Replace(long, "[{}]", "[{}"+strings.Repeat(",{}", maxObjects)+"]", 1), "more than 100 objects, expected 1"},
		{"v1beta1 needs no UID", "v1beta1", `{"response":{"result":{"status":"Success"},"convertedObjects":[{}]}}`, ""},
		{"v1beta1 without a response", "v1beta1", `{}`, "no response provided"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects, err := conversionResponse([]byte(test.body), test.version, "u")
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.err || err == nil && len(objects) != 1 && len(objects) != maxObjects {
				t.Errorf("%d objects, %q; want %q", len(objects), got, test.err)
			}
		})
	}
}

func TestConversionWebhooksMayChangeOnlyLabelsAndAnnotationsOfMetadata(t *testing.T) {
	read := func(text string) *unstructured.Unstructured {
		u, err := readConverted([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	const before = `{"apiVersion":"x.io/v1","kind":"Thing","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"l":"a"}}}`
	converted := func(metadata string) string {
		return `{"apiVersion":"x.io/v2","kind":"Thing","metadata":` + metadata + `}`
	}
	for text, want := range map[string]string{
		converted(`{"name":"a","namespace":"n","uid":"u","generation":9,"finalizers":["a/b"],"labels":{"l":"b"},"annotations":{"c":"d"}}`): "",
		`{"apiVersion":"x.io/v1","kind":"Thing"}`: "object at index 0: invalid groupVersion (expected x.io/v2, received x.io/v1)",
		`{"apiVersion":"x.io/v2","kind":"Other"}`: "object at index 0: invalid kind (expected Thing, received Other)",
		converted(`"x"`): "object: must have the same name: a != ",
		converted(`{"name":"a","namespace":"m"}`):                                          "object: must have the same namespace: n != m",
		converted(`{"name":"a","namespace":"n","uid":"v"}`):                                "object: must have the same UID: u != v",
		converted(`{"name":"a","namespace":"n","uid":"u","labels":{"l":5}}`):               "metadata: metadata.labels[l] must be a string, but is int64 in converted object",
		converted(`{"name":"a","namespace":"n","uid":"u","labels":"l"}`):                   "metadata: metadata.labels must be an object, but is string in converted object",
		converted(`{"name":"a","namespace":"n","uid":"u","annotations":{"bad key!":"x"}}`): "metadata: metadata.annotation: Invalid value: \"bad key!\"",
		converted(`{"name":"a","namespace":"n","uid":"u","labels":{"bad key!":"x"}}`):      "metadata: metadata.labels: Invalid value: \"bad key!\"",
	} {
		out, got := read(text), ""
		if err := checkConverted(read(before), out, schema.GroupVersion{Group: "x.io", Version: "v2"}); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		if want == "" && (out.GetResourceVersion() != "7" || out.GetGeneration() != 0 || len(out.GetFinalizers()) != 0 || out.GetLabels()["l"] != "b" || out.GetAnnotations()["c"] != "d") {
			t.Errorf("%s gives %v", text, out.Object)
		}
	}
	if _, err := readConverted([]byte(`{}`)); err == nil || err.Error() != "Object 'Kind' is missing in '{}'" {
		t.Errorf("without a kind: %v", err)
	}
	long := converted(`{"name":"` + strings.Repeat("a", maxConverted) + `"}`)
	if _, err := readConverted([]byte(long)); err == nil || err.Error() != fmt.Sprintf("the converted object has %d bytes, at most 3145728 are allowed", len(long)) {
		t.Errorf("more than a request could bring: %v", err)
	}
}

func TestConversionRequestsHaveNoResourceVersion(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.io/v1", "kind": "Thing", "metadata": map[string]any{"name": "a", "resourceVersion": "7"}}}
	body, version, uid, err := conversionRequest([]string{"v9", "v1"}, u, schema.GroupVersion{Group: "x.io", Version: "v2"})
	if err != nil || version != "v1" || u.GetResourceVersion() != "7" {
		t.Fatalf("%s, %v", version, err)
	}
	want := `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"` + string(uid) + `","desiredAPIVersion":"x.io/v2","objects":[{"apiVersion":"x.io/v1","kind":"Thing","metadata":{"name":"a"}}]},` +
		`"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}`
	if string(body) != want || !json.Valid(body) {
		t.Errorf("%s is sent", body)
	}
}

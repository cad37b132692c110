package admissionregistration_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
	rules "github.com/knarr-project/knarr/internal/resource"
)

// TestAdmissionConfigurationIsRefusedAsUpstream compares our errors about broken objects of
// admissionregistration.k8s.io with those of upstream's API server v1.36.3.
func TestAdmissionConfigurationIsRefusedAsUpstream(t *testing.T) {
	data, err := os.ReadFile("testdata/upstream.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Object json.RawMessage
		Errors []string
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		var m metav1.TypeMeta
		if err := json.Unmarshal(c.Object, &m); err != nil {
			t.Fatal(err)
		}
		kind, ok := api.ByKind(schema.FromAPIVersionAndKind(m.APIVersion, m.Kind).GroupKind())
		if !ok {
			t.Fatalf("no kind %s", m.Kind)
		}
		obj := kind.New()
		if err := json.Unmarshal(c.Object, obj); err != nil {
			t.Fatal(err)
		}
		s := rules.For(kind.GroupResource())
		s.Default(obj)
		errs := s.ValidateMeta(obj.(metav1.Object), false)
		errs = append(errs, s.ValidateCreate(obj)...)
		var got []string
		for _, e := range errs {
			got = append(got, e.Field+": "+e.ErrorBody())
		}
		if slices.Equal(got, c.Errors) {
			continue
		}
		for i := range max(len(got), len(c.Errors)) {
			var a, b string
			if i < len(got) {
				a = got[i]
			}
			if i < len(c.Errors) {
				b = c.Errors[i]
			}
			if a != b {
				t.Errorf("%s, error %d:\n got  %s\n want %s", m.Kind, i, a, b)
			}
		}
	}
}

package admissionregistration

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestPathsOfWebhookServices(t *testing.T) {
	for _, test := range []struct{ name, path, message string }{
		{"an empty or missing path", "", ""},
		{"the root", "/", ""},
		{"several segments", "/apply/v1.foo", ""},
		{"a trailing slash", "/apply/", ""},
		{"no leading slash", "apply", "must start with a '/'"},
		{"an empty segment", "/a//b", "segment[1] may not be empty"},
	} {
		errs := validateWebhookService(&admissionregistrationv1.ServiceReference{Namespace: "n", Name: "s", Path: &test.path}, field.NewPath("service"))
		if test.message == "" && len(errs) > 0 || test.message != "" && (len(errs) == 0 || errs[0].Detail != test.message || errs[0].Field != "service.path") {
			t.Errorf("%s: %v, want %q", test.name, errs, test.message)
		}
	}
}

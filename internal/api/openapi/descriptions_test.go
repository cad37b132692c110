package openapi

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTruncatedDescriptionsAreRepaired(t *testing.T) {
	doc, err := build2(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, definition, field, ends string }{
		{"a line of dashes does not end one", "core.v1.PodSecurityContext", "fsGroup", "when spec.os.name is windows."},
		{"nor does a drawing", "core.v1.TopologySpreadConstraint", "maxSkew", "0 is not allowed."},
		{"values are listed after the whole text", "core.v1.TopologySpreadConstraint", "whenUnsatisfiable", "even if constraints are not satisfied."},
		{"an example of PEM has its lines", "certificates.v1.CertificateSigningRequestStatus", "certificate", "    -----END CERTIFICATE-----\n    )"},
		{"a field without generated documentation has a description", "storage.v1.VolumeAttachmentSource", "inlineVolumeSpec", "enabled the CSIMigration feature."},
	} {
		if got := doc.Definitions["io.k8s.api."+c.definition].Properties[c.field].Description; !strings.HasSuffix(got, c.ends) {
			t.Errorf("%s: got …%q", c.name, got[max(0, len(got)-80):])
		}
	}
	for _, c := range []struct{ name, definition, field, has string }{
		{"backslashes are as the comment has them", "core.v1.PodSpec", "setHostnameAsFQDN", `HKEY_LOCAL_MACHINE\\SYSTEM`},
		{"quotes in an example are as the comment has them", "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", "validationActions", `[{\"message\": \"Invalid value\"`},
		{"an empty line before the markers moves the values down", "admissionregistration.v1.Mutation", "patchType", "Required.\n\n\nPossible enum values:"},
		{"an empty line before the markers matters in an embedded struct too", "admissionregistration.v1.RuleWithOperations", "scope", "\"*\".\n\n\nPossible enum values:"},
		{"without an empty line the values stay", "core.v1.Taint", "effect", "NoExecute.\n\nPossible enum values:"},
	} {
		if got := doc.Definitions["io.k8s.api."+c.definition].Properties[c.field].Description; !strings.Contains(got, c.has) {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
	for field := range fieldDocs {
		i := strings.LastIndex(field, ".")
		if _, ok := doc.Definitions[field[:i]].Properties[field[i+1:]]; !ok {
			t.Errorf("field %s does not exist", field)
		}
	}
}

// groupsOf returns the groups of a definition's kinds.
func groupsOf(s *schemas, name string) []string {
	kinds, _ := s.done[name].Extensions[extensionGVK].([]any)
	var list []string
	for _, k := range kinds {
		list = append(list, k.(map[string]any)["group"].(string)+"/"+k.(map[string]any)["version"].(string))
	}
	return list
}

func TestOptionsListTheirGroupVersions(t *testing.T) {
	const options = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
	for _, c := range []struct {
		name          string
		groupVersions []schema.GroupVersion
		has, hasNot   []string
	}{
		{"the version 2 document also lists the versions of reviews", nil,
			[]string{"/v1", "apps/v1beta2", "admission.k8s.io/v1", "admission.k8s.io/v1beta1", "apiregistration.k8s.io/v1beta1", "imagepolicy.k8s.io/v1alpha1"}, []string{"metrics.k8s.io/v1beta1"}},
		{"documents of custom kinds list neither reviews nor extension groups", optionGroups(),
			[]string{"/v1", "apps/v1beta2"}, []string{"admission.k8s.io/v1", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1beta1", "metrics.k8s.io/v1beta1"}},
		{"a group version lists its own", []schema.GroupVersion{{Group: "apps", Version: "v1"}}, []string{"/v1", "apps/v1"}, []string{"admission.k8s.io/v1", "apps/v1beta2"}},
		{"the document of metrics lists its own", []schema.GroupVersion{{Group: metricsGroup, Version: "v1beta1"}}, []string{"metrics.k8s.io/v1beta1"}, []string{"apps/v1"}},
	} {
		s, err := newSchemas(v2, c.groupVersions...)
		if err != nil {
			t.Fatal(err)
		}
		s.schemaOf(zero(schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}))
		got := groupsOf(s, options)
		if !slices.IsSorted(got) {
			t.Errorf("%s: %v is not sorted", c.name, got)
		}
		for _, want := range c.has {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %s is missing", c.name, want)
			}
		}
		for _, no := range c.hasNot {
			if slices.Contains(got, no) {
				t.Errorf("%s: %s is there", c.name, no)
			}
		}
	}
}

func TestIssuerDiscoveryIsDocumented(t *testing.T) {
	all, err := build2(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".well-known/openid-configuration", "openid/v1/jwks"} {
		if !slices.Contains(paths3(nil), path) {
			t.Errorf("version 3 has no document %s", path)
		}
		one, err := build3(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for which, ok := range map[string]bool{"2": all.Paths.Paths["/"+path+"/"].Get != nil, "3": one.Paths.Paths["/"+path+"/"] != nil} {
			if !ok {
				t.Errorf("version %s has no path /%s/", which, path)
			}
		}
	}
}

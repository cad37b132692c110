package custom

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The results are those of upstream's kube-apiserver v1.36.3. A name with "-" is a deprecated
// version; one with "!" is not served.
func TestDeprecationWarningsNameTheNewestStableVersion(t *testing.T) {
	for _, tc := range []struct{ versions, want string }{
		{"v1beta1- v1", "v1"},
		{"v1- v2", "v2"},
		{"v2- v1", ""},
		{"v1- v2beta1", ""},
		{"v1alpha1- v1beta1 v1", "v1"},
		{"v1beta1- v1- v2", "v2"},
		{"v1beta1- v1-", ""},
		{"v1beta1- v1! v1alpha1", ""},
		{"v1beta1- v1beta2", "v1beta2"},
		{"v1beta1- v2 v1", "v2"},
		{"v11- v2 v10", ""},
		{"foo- v1alpha1", "v1alpha1"},
		{"foo- bar", "bar"},
		{"bar- foo", ""},
	} {
		var versions []apiextensionsv1.CustomResourceDefinitionVersion
		for _, name := range strings.Fields(tc.versions) {
			versions = append(versions, apiextensionsv1.CustomResourceDefinitionVersion{
				Name: strings.Trim(name, "-!"), Served: !strings.HasSuffix(name, "!"), Deprecated: strings.HasSuffix(name, "-"),
			})
		}
		d := defined(nil, func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions = versions })
		want := "example.com/" + versions[0].Name + " Widget is deprecated"
		if tc.want != "" {
			want += "; use example.com/" + tc.want + " Widget"
		}
		if got := d.Versions()[0].DeprecationWarning(); got != want {
			t.Errorf("%s: %q, want %q", tc.versions, got, want)
		}
	}
}

package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoadFiles reads random data as an AdmissionConfiguration. It must be accepted, or refused
// with an error that names the configuration.
func FuzzLoadFiles(f *testing.F) {
	for _, settings := range []string{
		"- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: baseline}}\n",
		"- name: EventRateLimit\n  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 1, burst: 1}, {type: User, qps: -1, cacheSize: 99999999}]}\n",
		"- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {kubeConfigFile: none, allowTTL: 50, defaultAllow: true}}\n", "- name: Unknown\n", "- {}\n",
	} {
		f.Add([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n" + settings))
	}
	versions := strings.NewReplacer("apiVersion: apiserver.config.k8s.io/v1\n", "", "apiVersion: pod-security.admission.config.k8s.io/v1,", "", "apiVersion: eventratelimit.admission.k8s.io/v1alpha1,", "")
	f.Fuzz(func(t *testing.T, data []byte) {
		// Skip data with a path to another folder. Slashes in API versions are harmless.
		if strings.ContainsAny(versions.Replace(string(data)), `/\`) {
			return
		}
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadFiles(path, everyPlugin); err != nil && !strings.HasPrefix(err.Error(), "admission configuration") {
			t.Errorf("%v does not name the configuration", err)
		}
	})
}

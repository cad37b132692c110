package config

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad reads files that may say anything: what is wrong with them is told.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{"listen: 0.0.0.0:6443\npodCIDR: 10.42.0.0/16\nserviceCIDR: fd00::/108\n", "nodeName: ü\nserviceNodePortRange: 3-1\n", "unknown: 1\n", "a: &a [*a]\n", "- a\n", `{"podCIDR":"10.0.0.0/33","clusterDomain":"."}`} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "config")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c := Default()
		if c.Load(path) == nil {
			_ = c.Validate()
		}
	})
}

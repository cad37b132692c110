package config

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzReadFile reads arbitrary files: a fault is an error, never a panic.
func FuzzReadFile(f *testing.F) {
	for _, text := range []string{"listen: 0.0.0.0:6443\npod-cidr: 10.42.0.0/16\nservice-cidr: fd00::/108\n", "node-name: ü\nservice-node-port-range: 3-1\n", "node-labels: {a: b}\ntls-san: [a, 1]\n", "unknown: 1\n", "a: &a [*a]\n", "- a\n", `{"pod-cidr":"10.0.0.0/33","cluster-domain":"."}`} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "config")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c := Default()
		if ReadFile(flagsOf(&c), path) == nil {
			_ = c.Validate()
		}
	})
}

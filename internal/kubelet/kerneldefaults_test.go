package kubelet

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKernelSettingsThatDifferAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]string
		want   string
	}{
		"as wanted":          {},
		"one differs":        {change: map[string]string{"kernel/panic": "0"}, want: "kernel.panic is 0, and must be 10"},
		"one does not exist": {change: map[string]string{"vm/panic_on_oom": ""}, want: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			root, have := t.TempDir(), maps.Clone(kernelDefaults)
			maps.Copy(have, c.change)
			for path, value := range have {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if value == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := checkKernelDefaults(root)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

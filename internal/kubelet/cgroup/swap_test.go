package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheKernelTellsWhetherItLimitsSwap(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  bool
	}{
		"a machine":                            {files: []string{"cgroup.procs", "system.slice/memory.current", "system.slice/memory.swap.max"}, want: true},
		"a container":                          {files: []string{"memory.current", "memory.swap.max"}, want: true},
		"a kernel without the limit":           {files: []string{"cgroup.procs", "system.slice/memory.current"}},
		"a machine without memory accounting":  {files: []string{"cgroup.procs", "system.slice/cpu.weight"}},
		"a container without the limit":        {files: []string{"memory.current"}},
		"cgroup v1, whose memory is elsewhere": {files: []string{"memory/memory.limit_in_bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, f := range c.files {
				f = filepath.Join(root, f)
				if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(f, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := limitsSwap(root); got != c.want {
				t.Errorf("limitsSwap is %v", got)
			}
		})
	}
}

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesOfUpstreamAreRecognizedByTheirKind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for name, c := range map[string]struct {
		kind       string
		groups     Groups
		given      string // --scheduler-config
		taken, bad string
	}{
		"the scheduler's own":    {"KubeSchedulerConfiguration", Process | SchedulerAlone, "", file, ""},
		"given twice":            {"KubeSchedulerConfiguration", Process | SchedulerAlone, "other", "other", "twice"},
		"for a whole server":     {"KubeSchedulerConfiguration", Process | Server | Controlling, "", "", "--scheduler-config"},
		"a kubelet's":            {"KubeletConfiguration", Process | SchedulerAlone, "", "", "--kubelet-config"},
		"settings of knarr":      {"", Process | SchedulerAlone, "", "", ""},
		"another kind: ReadFile": {"Pod", Process | SchedulerAlone, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte("kind: "+c.kind+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := Default()
			flags := flagsOfGroups(&cfg, c.groups)
			cfg.File, cfg.SchedulerConfig = file, c.given
			err := cfg.TakeUpstreamConfig(flags)
			if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%v", err)
			}
			if cfg.SchedulerConfig != c.taken {
				t.Errorf("takes %q, want %q", cfg.SchedulerConfig, c.taken)
			}
		})
	}
}

package kubelet

import (
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/kubelet/node"
	"github.com/knarr-project/knarr/internal/kubelet/settings"
)

func TestSettingsOfMemoryNeedAMachineThatCanKeepThem(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		change     func(*settings.Settings)
		swap       int64
		v2, limits bool
		want       string
	}{
		"defaults with swap":              {change: func(*settings.Settings) {}, swap: 1},
		"failSwapOn with swap":            {change: func(s *settings.Settings) { s.FailSwapOn = &yes }, swap: 1, want: "this machine has swap"},
		"failSwapOn without swap":         {change: func(s *settings.Settings) { s.FailSwapOn = &yes }},
		"LimitedSwap with cgroup v2":      {change: limitedSwap, swap: 1, v2: true, limits: true},
		"LimitedSwap without swap":        {change: limitedSwap, v2: true, limits: true},
		"LimitedSwap with cgroup v1":      {change: limitedSwap, swap: 1, want: "cgroup v1"},
		"LimitedSwap with an old kernel":  {change: limitedSwap, swap: 1, v2: true, want: "memory.swap.max"},
		"LimitedSwap with failSwapOn":     {change: func(s *settings.Settings) { limitedSwap(s); s.FailSwapOn = &yes }, v2: true, limits: true, want: "failSwapOn"},
		"group kill with cgroup v1":       {change: func(s *settings.Settings) { s.SingleProcessOOMKill = &no }, want: "singleProcessOOMKill"},
		"group kill with cgroup v2":       {change: func(s *settings.Settings) { s.SingleProcessOOMKill = &no }, v2: true},
		"single processes with cgroup v1": {change: func(s *settings.Settings) { s.SingleProcessOOMKill = &yes }},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings.Default()
			c.change(s)
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			err := checkMemory(&Config{Settings: s}, node.Machine{Swap: c.swap}, c.v2, c.limits)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func limitedSwap(s *settings.Settings) { s.MemorySwap.SwapBehavior = "LimitedSwap" }

package config

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// maxHead is the largest file in bytes that TakeUpstreamConfig reads.
const maxHead = 1 << 20

// TakeUpstreamConfig recognizes upstream's configuration of a component in File by its kind. If the
// command runs that component alone, the file becomes KubeletConfig or SchedulerConfig, so that a
// command line for upstream's component works. Other commands refuse it. The flags are those of the
// command.
func (c *Config) TakeUpstreamConfig(flags *pflag.FlagSet) error {
	for _, k := range []struct {
		kind, flag string
		alone      bool
		file       *string
	}{
		{"KubeletConfiguration", "kubelet-config", flags.Lookup("config-dir") != nil, &c.KubeletConfig},
		{"KubeSchedulerConfiguration", "scheduler-config", flags.Lookup("kubeconfig") != nil && flags.Lookup("scheduler-config") != nil, &c.SchedulerConfig},
	} {
		switch {
		case kindOf(c.File) != k.kind:
		case !k.alone:
			return fmt.Errorf("config: %s is a %s: give it as --%s", c.File, k.kind, k.flag)
		case *k.file != "":
			return fmt.Errorf("config: a %s is given twice, as --config and as --%s", k.kind, k.flag)
		default:
			*k.file, c.File = c.File, ""
			return nil
		}
	}
	return nil
}

// kindOf returns the kind in a file; "" if it has none or cannot be read, which ReadFile reports.
func kindOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHead))
	if err != nil {
		return ""
	}
	var head struct {
		Kind string `json:"kind"`
	}
	if yaml.Unmarshal(text, &head) != nil {
		return ""
	}
	return head.Kind
}

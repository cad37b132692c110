package config

import (
	"errors"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

// maxHead is the largest file in bytes that TakeKubeletConfig reads.
const maxHead = 1 << 20

// TakeKubeletConfig recognizes upstream's KubeletConfiguration in File by its kind. With alone,
// the command is `knarr kubelet`: the file becomes KubeletConfig, so that a command line for
// upstream's kubelet works. Other commands refuse it.
func (c *Config) TakeKubeletConfig(alone bool) error {
	f, err := os.Open(c.File)
	if err != nil {
		return nil // ReadFile reports it
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHead))
	if err != nil || !isKubeletConfiguration(text) {
		return nil
	}
	switch {
	case !alone:
		return fmt.Errorf("config: %s is a KubeletConfiguration: give it as --kubelet-config", c.File)
	case c.KubeletConfig != "":
		return errors.New("config: a KubeletConfiguration is given twice, as --config and as --kubelet-config")
	}
	c.KubeletConfig, c.File = c.File, ""
	return nil
}

func isKubeletConfiguration(text []byte) bool {
	var head struct {
		Kind string `json:"kind"`
	}
	return yaml.Unmarshal(text, &head) == nil && head.Kind == "KubeletConfiguration"
}

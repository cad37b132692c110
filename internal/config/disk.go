package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// evictionSignals are the signals of --eviction-hard (KubeletConfiguration, evictionHard).
var evictionSignals = []string{
	"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available",
}

// EvictionThresholds returns the hard thresholds by signal. Nil selects the node agent's defaults.
func (c *Config) EvictionThresholds() map[string]string {
	var thresholds map[string]string
	for _, text := range c.EvictionHard {
		signal, quantity, _ := strings.Cut(text, "<")
		if thresholds == nil {
			thresholds = map[string]string{}
		}
		thresholds[signal] = quantity
	}
	return thresholds
}

// validateDisk validates the settings for evictions and image removal.
func (c *Config) validateDisk(bad func(field, value, allowed string)) {
	for _, text := range c.EvictionHard {
		signal, quantity, ok := strings.Cut(text, "<")
		switch {
		case !ok || !slices.Contains(evictionSignals, signal):
			bad("eviction-hard", text, "SIGNAL<QUANTITY with a signal of "+strings.Join(evictionSignals, ", "))
		case !isThreshold(quantity):
			bad("eviction-hard", text, "a quantity such as 100Mi, or a part such as 10%")
		}
	}
	if c.ImageGCHigh < 1 || c.ImageGCHigh > 100 {
		bad("image-gc-high-threshold", fmt.Sprint(c.ImageGCHigh), "a percentage, between 1 and 100")
	}
	if c.ImageGCLow < 1 || c.ImageGCLow >= c.ImageGCHigh {
		bad("image-gc-low-threshold", fmt.Sprint(c.ImageGCLow), fmt.Sprintf("a percentage below image-gc-high-threshold, which is %d", c.ImageGCHigh))
	}
}

func isThreshold(text string) bool {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		v, err := strconv.ParseFloat(percent, 64)
		return err == nil && v >= 0 && v <= 100
	}
	q, err := resource.ParseQuantity(text)
	return err == nil && q.Sign() >= 0
}

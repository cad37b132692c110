package cri

import (
	"regexp"
	"testing"
	"time"
)

// Each statistics request costs containerd and the shim milliseconds per container. The node agent
// requests statistics on demand.
func TestContainerdDoesNotPollShimsForStatistics(t *testing.T) {
	c, err := Config{DataDir: "/var/lib/knarr"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	text := c.containerdConfig("overlayfs", false)
	found := regexp.MustCompile(`(?s)\[plugins\.'io\.containerd\.cri\.v1\.runtime'\]\n[^\[]*?\nstats_collect_period = '(\w+)'\n`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no period is set, so it is a second:\n%s", text)
	}
	if period, err := time.ParseDuration(found[1]); err != nil || period < 5*365*24*time.Hour {
		t.Errorf("the period is %s", found[1])
	}
}

package run

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/knarr-project/knarr/internal/client/clienttest"
	"github.com/knarr-project/knarr/internal/clusterinfo"
	"github.com/knarr-project/knarr/internal/config"
)

// joinedNode is a joined node with the flags of line.
func joinedNode(t *testing.T, dir string, line ...string) *joined {
	t.Helper()
	cfg := config.Default()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	cfg.AddFlags(flags, config.Process|config.Node|config.Joining)
	if err := flags.Parse(line); err != nil {
		t.Fatal(err)
	}
	cfg.NoteGiven(flags)
	return &joined{cfg: &cfg, dir: dir, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func TestAJoinedNodeLearnsTheClustersRanges(t *testing.T) {
	api, dir := clienttest.NewMemory(), t.TempDir()
	info := clusterinfo.Info{ServiceCIDR: "10.96.0.0/12", PodCIDR: "10.244.0.0/16", ClusterDomain: "corp.example", ClusterDNS: "10.96.0.10"}
	for range 2 { // the second time it is there already
		if err := clusterinfo.Publish(t.Context(), api, info); err != nil {
			t.Fatal(err)
		}
	}
	check := func(j *joined) {
		t.Helper()
		c := j.cfg
		if c.ServiceCIDR != info.ServiceCIDR || c.PodCIDR != info.PodCIDR || c.ClusterDomain != info.ClusterDomain || c.DNSAddress() != info.ClusterDNS {
			t.Errorf("the node has %s, %s, %s, %s", c.ServiceCIDR, c.PodCIDR, c.ClusterDomain, c.DNSAddress())
		}
	}
	j := joinedNode(t, dir)
	if err := j.learn(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	check(j)

	j = joinedNode(t, dir, "--service-cidr", "10.43.0.0/16")
	if err := j.learn(t.Context(), api); err == nil || !strings.Contains(err.Error(), `the cluster has "10.96.0.0/12"`) {
		t.Errorf("another range is not refused: %v", err)
	}

	moved := info
	moved.ClusterDomain = "other.example"
	if err := clusterinfo.Publish(t.Context(), api, moved); err != nil {
		t.Fatal(err)
	}
	if got, err := clusterinfo.Read(t.Context(), api); err != nil || got != moved {
		t.Errorf("the cluster publishes %+v, %v", got, err)
	}
}

func TestANodeOfAClusterWithoutPublishedRangesUsesItsFlags(t *testing.T) {
	j := joinedNode(t, t.TempDir(), "--service-cidr", "10.50.0.0/16")
	if err := j.learn(t.Context(), clienttest.NewMemory()); err != nil {
		t.Fatal(err)
	}
	if got := j.cfg.DNSAddress(); got != "10.50.0.10" {
		t.Errorf("the DNS address is %s", got)
	}
}

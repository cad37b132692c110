package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDefaultsAreValid(t *testing.T) {
	c := Default()
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if got := c.ServiceIP(10).String(); got != "10.43.0.10" {
		t.Errorf("DNS Service address is %s", got)
	}
}

func TestValidateNamesFieldValueAndWhatIsAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"listen without port":          {func(c *Config) { c.Listen = "0.0.0.0" }, `listen: "0.0.0.0" is not usable`},
		"node name in upper case":      {func(c *Config) { c.NodeName = "Node" }, `node-name: "Node"`},
		"pod range too small":          {func(c *Config) { c.PodCIDR = "10.0.0.0/25" }, `pod-cidr: "10.0.0.0/25"`},
		"ranges overlap":               {func(c *Config) { c.ServiceCIDR = "10.42.1.0/24" }, "does not overlap pod-cidr"},
		"node ports in wrong order":    {func(c *Config) { c.NodePortRange = "9-8" }, `node-port-range: "9-8"`},
		"unknown log level":            {func(c *Config) { c.LogLevel = "loud" }, `log-level: "loud"`},
		"run folder too long":          {func(c *Config) { c.RunDir = "/" + strings.Repeat("x", 80) }, "run-dir"},
		"advertise address not an IP":  {func(c *Config) { c.AdvertiseAddress = "host" }, `advertise-address: "host"`},
		"join is not a URL":            {func(c *Config) { c.Join = "host:6443" }, `join: "host:6443"`},
		"cluster domain with a blank":  {func(c *Config) { c.ClusterDomain = "a b" }, `cluster-domain: "a b"`},
		"no pods allowed on this node": {func(c *Config) { c.MaxPods = 0 }, `max-pods: "0"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			c.NodeName = "node"
			tc.change(&c)
			err := c.Validate()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestLoadRefusesUnknownFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("dataDir: /x\nnodeNmae: y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Default()
	if err := c.Load(path); err == nil || !strings.Contains(err.Error(), "nodeNmae") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}

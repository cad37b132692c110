package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// serverConfig returns the configuration of a command line.
func serverConfig(t *testing.T, args ...string) *Config {
	t.Helper()
	c := Default()
	c.NodeName = "n"
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.AddFlags(flags, Process|Server|Controlling|Joining)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	c.NoteGiven(flags)
	return &c
}

func TestAServerAdoptsTheClustersSettings(t *testing.T) {
	first := serverConfig(t, "--service-cidr=10.99.0.0/16", "--cluster-domain=a.b", "--runtime-config=api/alpha=true,api/beta=false", "--enable-admission-plugins=AlwaysPullImages,EventRateLimit", "--local-storage=false", "--service-account-issuer=https://one", "--service-account-issuer=https://two", "--node-monitor-grace-period=5m", "--listen=127.0.0.1:7443")
	second := serverConfig(t, "--cluster-domain=a.b", "--data-dir=/d")
	if err := second.Adopt(first.Shared(), true); err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(first.Shared(), second.Shared(), slices.Equal) {
		t.Errorf("got %v, want %v", second.Shared(), first.Shared())
	}
	if second.Listen != "0.0.0.0:6443" || second.DataDir != "/d" || second.LocalStorage {
		t.Errorf("%+v", second)
	}
	// A second adoption changes nothing.
	if err := second.Adopt(first.Shared(), true); err != nil || len(second.APIServer.ServiceAccounts.Issuers) != 2 {
		t.Errorf("%v, %v", second.APIServer.ServiceAccounts.Issuers, err)
	}
}

func TestAServerWithOtherSettingsIsRefused(t *testing.T) {
	first, second := serverConfig(t), serverConfig(t, "--service-cidr=10.99.0.0/16", "--node-port-range=40000-41000")
	err := second.Adopt(first.Shared(), true)
	for _, want := range []string{"--service-cidr", "10.99.0.0/16", "10.43.0.0/16", "--node-port-range", "40000-41000", "30000-32767"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if err := second.Adopt(first.Shared(), false); err != nil || second.ServiceCIDR != "10.99.0.0/16" {
		t.Errorf("a flag does not win at a later start: %s, %v", second.ServiceCIDR, err)
	}
}

func TestHostileSettingsAreErrors(t *testing.T) {
	for name, settings := range map[string]map[string][]string{
		"an invalid range":     {"service-cidr": {"x"}},
		"two values":           {"service-cidr": {"10.1.0.0/16", "10.2.0.0/16"}},
		"no value":             {"cluster-domain": {}},
		"an invalid duration":  {"event-ttl": {"long"}},
		"an invalid port pair": {"node-port-range": {"5-1"}},
	} {
		if err := serverConfig(t).Adopt(settings, true); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := serverConfig(t).Adopt(map[string][]string{"data-dir": {"/etc"}, "unknown": {"x"}}, true); err != nil {
		t.Errorf("other names: %v", err)
	}
}

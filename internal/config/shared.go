package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// shared names the settings that must be equal on all servers of a cluster. They decide about the
// content of the store, the validity of tokens, admission and the controllers. Settings of one
// machine, such as addresses and files, are not among them.
var shared = []string{
	"service-cidr", "pod-cidr", "cluster-domain", "node-port-range", "etcd-prefix",
	"service-account-issuer", "api-audiences", "service-account-max-token-expiration", "service-account-extend-token-expiration",
	"authorization-mode", "enable-admission-plugins", "disable-admission-plugins", "runtime-config", "allow-privileged",
	"load-balancer-pool", "local-storage", "node-monitor-grace-period", "cluster-signing-duration",
	"legacy-service-account-token-clean-up-period", "event-ttl", "default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds",
}

// Shared returns the settings that all servers of a cluster have in common, by the flag's name. A
// list has one element per value.
func (c *Config) Shared() map[string][]string {
	own := *c // binding a flag writes its variable, which others may read
	flags := own.sharedFlags()
	values := map[string][]string{}
	for _, name := range shared {
		values[name] = sharedValue(flags.Lookup(name))
	}
	return values
}

// Adopt sets the cluster's shared settings. A flag that is given with another value is an error if
// strict is set; otherwise it wins. Unknown names are ignored: another version may have more.
func (c *Config) Adopt(settings map[string][]string, strict bool) error {
	flags := c.sharedFlags()
	var differs []string
	for _, name := range shared {
		want, ok := settings[name]
		flag := flags.Lookup(name)
		own := sharedValue(flag)
		if !ok || slices.Equal(own, want) {
			continue
		}
		if c.IsGiven(name) {
			if strict {
				differs = append(differs, fmt.Sprintf("--%s is %q here and %q in the cluster", name, strings.Join(own, ","), strings.Join(want, ",")))
			}
			continue
		}
		if err := setShared(flag, want); err != nil {
			return fmt.Errorf("the cluster's --%s %q: %w", name, strings.Join(want, ","), err)
		}
	}
	if len(differs) > 0 {
		return fmt.Errorf("settings that all servers share differ: %s; leave these flags out", strings.Join(differs, "; "))
	}
	return c.Validate()
}

// sharedFlags binds flags to the current values.
func (c *Config) sharedFlags() *pflag.FlagSet {
	given, noPods := c.APIServer.flags, c.noPods
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.AddFlags(flags, Process|Server|Controlling)
	c.APIServer.flags, c.noPods = given, noPods
	return flags
}

func sharedValue(flag *pflag.Flag) []string {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return slices.Clone(list.GetSlice())
	}
	text := flag.Value.String()
	if strings.HasPrefix(flag.Value.Type(), "stringTo") {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
		pairs := strings.Split(text, ",")
		slices.Sort(pairs) // the order of a map's values is random
		text = strings.Join(pairs, ",")
	}
	return []string{text}
}

func setShared(flag *pflag.Flag, values []string) error {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return list.Replace(values)
	}
	if len(values) != 1 {
		return fmt.Errorf("%d values for one", len(values))
	}
	return flag.Value.Set(values[0])
}

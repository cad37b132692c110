package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestOverridesOfTheStore(t *testing.T) {
	for name, tc := range map[string]struct{ given, want string }{
		"none":                        {"", "[]"},
		"a kind of the core":          {"/events#http://a:2379", "[{[{ events}] [http://a:2379]}]"},
		"several servers":             {"/events#http://a:2379;http://b:2379", "[{[{ events}] [http://a:2379 http://b:2379]}]"},
		"the same servers, otherwise": {"apps/deployments#a;b,coordination.k8s.io/leases#b;a", "[{[{apps deployments} {coordination.k8s.io leases}] [a b]}]"},
		"other servers":               {"/events#a,/pods#b", "[{[{ events}] [a]} {[{ pods}] [b]}]"},
		"a whole group":               {"apps/*#a", "[{[{apps *}] [a]}]"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parsed("--etcd-servers=x", "--etcd-servers-overrides="+tc.given)
			if got := fmt.Sprint(c.Overrides()); err != nil || got != tc.want {
				t.Errorf("got %s, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestElsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		set func(*Config)
		is  string
	}{
		"none":                    {func(*Config) {}, ""},
		"overrides":               {func(c *Config) { c.StoreOverrides = []string{"/events#a", "coordination.k8s.io/*#b"} }, "/events coordination.k8s.io/leases"},
		"those of another server": {func(c *Config) { c.Controllers.StoredElsewhere = []string{"/events", "apps/*"} }, "/events apps/deployments"},
	} {
		c := Default()
		tc.set(&c)
		for _, kind := range []string{"/events", "/pods", "apps/deployments", "coordination.k8s.io/leases", "events.k8s.io/events"} {
			group, resource, _ := strings.Cut(kind, "/")
			if want := slices.Contains(strings.Fields(tc.is), kind); c.Elsewhere(group, resource) != want {
				t.Errorf("%s: %s: want %v", name, kind, want)
			}
		}
	}
	c := Default()
	c.NodeName = "node"
	c.Controllers.StoredElsewhere = []string{"events"}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), `stored-elsewhere: "events" is not usable: GROUP/RESOURCE, such as /events or apps/*`) {
		t.Errorf("got %v", err)
	}
}

func TestInvalidOverridesAreRefused(t *testing.T) {
	const format = "must be of format: group/resource#servers, where servers are URLs, semicolon separated"
	for given, want := range map[string]string{
		"x":                   format,
		"#a":                  format,
		"events#a":            format,
		"/#a":                 format,
		"/events#":            format,
		"/events#a;":          format,
		"/events#a#b":         format,
		"a/b/c#a":             format,
		"/events#a,/events#b": `"/events#b" is not usable: each kind once`,
	} {
		if _, err := parsed("--etcd-servers=x", "--etcd-servers-overrides="+given); err == nil || !strings.Contains(err.Error(), "etcd-servers-overrides: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", given, err)
		}
	}
	if _, err := parsed("--etcd-servers-overrides=/events#a"); err == nil || !strings.Contains(err.Error(), "only with --etcd-servers, where all other kinds lie") {
		t.Errorf("beside the store within: %v", err)
	}
}

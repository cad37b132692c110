package config

import (
	"slices"
	"strings"
)

// Override is a set of kinds with an etcd of their own.
type Override struct {
	Kinds     []OverriddenKind
	Endpoints []string
}

// OverriddenKind is a kind by its group ("" is the core group) and resource.
type OverriddenKind struct{ Group, Resource string }

const overrideFormat = "must be of format: group/resource#servers, where servers are URLs, semicolon separated"

// Overrides parses StoreOverrides. Entries with the same servers, in any order, are combined.
func (c *Config) Overrides() []Override {
	var all []Override
	sets := map[string]int{}
	for _, text := range c.StoreOverrides {
		kind, servers, ok := parseOverride(text)
		if !ok {
			continue // Validate reports it
		}
		key := strings.Join(slices.Sorted(slices.Values(servers)), ";")
		i, known := sets[key]
		if !known {
			i = len(all)
			sets[key] = i
			all = append(all, Override{Endpoints: servers})
		}
		all[i].Kinds = append(all[i].Kinds, kind)
	}
	return all
}

func parseOverride(text string) (kind OverriddenKind, servers []string, ok bool) {
	name, list, ok := strings.Cut(text, "#")
	if !ok || strings.Contains(list, "#") {
		return kind, nil, false
	}
	kind, ok = parseKind(name)
	servers = strings.Split(list, ";")
	return kind, servers, ok && !slices.Contains(servers, "")
}

func parseKind(name string) (kind OverriddenKind, ok bool) {
	kind.Group, kind.Resource, ok = strings.Cut(name, "/")
	return kind, ok && kind.Resource != "" && !strings.Contains(kind.Resource, "/")
}

// Elsewhere reports whether a kind has an etcd of its own, according to this process's overrides or
// StoredElsewhere.
func (c *Config) Elsewhere(group, resource string) bool {
	is := func(kind OverriddenKind) bool {
		return kind.Group == group && (kind.Resource == resource || kind.Resource == "*")
	}
	for _, override := range c.Overrides() {
		if slices.ContainsFunc(override.Kinds, is) {
			return true
		}
	}
	return slices.ContainsFunc(c.Controllers.StoredElsewhere, func(name string) bool {
		kind, ok := parseKind(name)
		return ok && is(kind)
	})
}

func (c *Config) validateOverrides(bad func(field, value, allowed string)) {
	const field = "etcd-servers-overrides"
	seen := map[OverriddenKind]bool{}
	for _, text := range c.StoreOverrides {
		kind, _, ok := parseOverride(text)
		switch {
		case !ok:
			bad(field, text, overrideFormat)
		case seen[kind]:
			bad(field, text, "each kind once")
		case len(c.StoreEndpoints) == 0:
			bad(field, text, "only with --etcd-servers, where all other kinds lie")
		}
		seen[kind] = true
	}
}

package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Names of policies and scopes (KubeletConfiguration, topologyManagerPolicy and
// topologyManagerScope).
const (
	PolicyNone           = "none"
	PolicyBestEffort     = "best-effort"
	PolicyRestricted     = "restricted"
	PolicySingleNUMANode = "single-numa-node"
	ScopeContainer       = "container"
	ScopePod             = "pod"
)

// Names of policy options (KubeletConfiguration, topologyManagerPolicyOptions).
const (
	optionClosest  = "prefer-closest-numa-nodes"
	optionMaxNodes = "max-allowable-numa-nodes"
)

// defaultMaxNodes limits the number of NUMA nodes: each further one doubles the number of hints.
const defaultMaxNodes = 8

var (
	policies = []string{PolicyNone, PolicyBestEffort, PolicyRestricted, PolicySingleNUMANode}
	scopes   = []string{ScopeContainer, ScopePod}
)

// options are the parsed policy options.
type options struct {
	closest  bool
	maxNodes int
}

func parseOptions(in map[string]string) (options, error) {
	o := options{maxNodes: defaultMaxNodes}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		value := in[name]
		var err error
		switch name {
		case optionClosest:
			if o.closest, err = strconv.ParseBool(value); err != nil {
				return o, fmt.Errorf("topologyManagerPolicyOptions[%s]: %q is not true or false", name, value)
			}
		case optionMaxNodes:
			if o.maxNodes, err = strconv.Atoi(value); err != nil || o.maxNodes < defaultMaxNodes || o.maxNodes > MaxNode+1 {
				return o, fmt.Errorf("topologyManagerPolicyOptions[%s]: %q is not a number from %d to %d", name, value, defaultMaxNodes, MaxNode+1)
			}
		default:
			return o, fmt.Errorf("topologyManagerPolicyOptions: unknown option %q; allowed are %s and %s", name, optionClosest, optionMaxNodes)
		}
	}
	return o, nil
}

func oneOf(field, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is not one of %s", field, value, strings.Join(allowed, ", "))
}

package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Names of policies (KubeletConfiguration, cpuManagerPolicy).
const (
	PolicyNone   = "none"
	PolicyStatic = "static"
)

// Names of the static policy's options (KubeletConfiguration, cpuManagerPolicyOptions).
const (
	optionFullCores       = "full-pcpus-only"
	optionAcrossNodes     = "distribute-cpus-across-numa"
	optionAlignBySocket   = "align-by-socket"
	optionAcrossCores     = "distribute-cpus-across-cores"
	optionStrict          = "strict-cpu-reservation"
	optionAlignByCache    = "prefer-align-cpus-by-uncorecache"
	gateAlphaOptions      = "CPUManagerPolicyAlphaOptions"
	topologySingleNode    = "single-numa-node"
	topologyPolicySetting = "topologyManagerPolicy"
)

// options are the parsed policy options.
type options struct {
	fullCores, acrossNodes, alignBySocket, acrossCores, strict, alignByCache bool
}

func parseOptions(policy string, in map[string]string, alpha bool, topologyPolicy string) (options, error) {
	var o options
	fields := map[string]*bool{
		optionFullCores: &o.fullCores, optionAcrossNodes: &o.acrossNodes, optionAlignBySocket: &o.alignBySocket,
		optionAcrossCores: &o.acrossCores, optionStrict: &o.strict, optionAlignByCache: &o.alignByCache,
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		field := fields[name]
		if field == nil {
			return o, fmt.Errorf("cpuManagerPolicyOptions: unknown option %q; allowed are %s", name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		var err error
		if *field, err = strconv.ParseBool(in[name]); err != nil {
			return o, fmt.Errorf("cpuManagerPolicyOptions[%s]: %q is not true or false", name, in[name])
		}
		if (name == optionAlignBySocket || name == optionAcrossCores) && !alpha {
			return o, fmt.Errorf("cpuManagerPolicyOptions[%s]: the option needs the feature gate %s", name, gateAlphaOptions)
		}
	}
	if policy != PolicyStatic && len(in) > 0 {
		return o, fmt.Errorf("cpuManagerPolicyOptions: the policy %q has no options; use %q", policy, PolicyStatic)
	}
	return o, o.check(topologyPolicy)
}

// check refuses options that contradict each other.
func (o options) check(topologyPolicy string) error {
	var errs []error
	exclude := func(a bool, nameA string, b bool, nameB string) {
		if a && b {
			errs = append(errs, fmt.Errorf("cpuManagerPolicyOptions: %s and %s exclude each other", nameA, nameB))
		}
	}
	exclude(o.fullCores, optionFullCores, o.acrossCores, optionAcrossCores)
	exclude(o.acrossNodes, optionAcrossNodes, o.acrossCores, optionAcrossCores)
	exclude(o.alignByCache, optionAlignByCache, o.acrossNodes, optionAcrossNodes)
	exclude(o.alignByCache, optionAlignByCache, o.acrossCores, optionAcrossCores)
	if o.alignBySocket && topologyPolicy == topologySingleNode {
		errs = append(errs, fmt.Errorf("cpuManagerPolicyOptions: %s contradicts %s %s", optionAlignBySocket, topologyPolicySetting, topologySingleNode))
	}
	return errors.Join(errs...)
}

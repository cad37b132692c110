package settings

import (
	"fmt"
	"maps"
	"slices"

	"github.com/knarr-project/knarr/internal/config"
)

// either are gates that can be on or off.
var either = map[string]bool{"CPUManagerPolicyAlphaOptions": true, "ContainerCheckpoint": true}

// validateGates accepts each gate only with the value that this node behaves by.
func validateGates(gates map[string]bool, bad report) {
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		is, known := config.FeatureGate(name)
		value := fmt.Sprintf("%s: %v", name, gates[name])
		switch {
		case !known:
			bad("featureGates", value, "a feature gate of Kubernetes v1.36")
		case is != gates[name] && !either[name]:
			bad("featureGates", value, fmt.Sprintf("only %s: %v, because this node cannot do otherwise", name, is))
		}
	}
}

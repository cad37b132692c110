package harness

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// passedOn lists the flags of kube-apiserver that tests set and knarr has under the same name.
var passedOn = []string{"enable-priority-and-fairness", "disable-admission-plugins", "enable-admission-plugins"}

// Flags returns the changed flags of a test that are passed on to knarr. The others locate the
// store, or tell how upstream's server reaches another one for authentication.
func Flags(set *pflag.FlagSet) (flags []string) {
	for _, name := range passedOn {
		f := set.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		flags = append(flags, "--"+name+"="+value)
	}
	return flags
}

// internalGates lists feature gates that change how upstream's server works, but not its answers.
var internalGates = map[featuregate.Feature]bool{"ListFromCacheSnapshot": true, "ConsistentListFromCache": true, "WatchCacheInitializationPostStartHook": true, "WatchFromStorageWithoutResourceVersion": true}

// Unavailable returns why knarr cannot serve a test, or "". The test may need another version of
// Kubernetes, or feature gates that differ from the defaults.
func Unavailable(set *pflag.FlagSet) string {
	for _, name := range []string{"emulated-version", "feature-gates"} {
		if set == nil {
			continue
		}
		if f := set.Lookup(name); f != nil && f.Changed {
			return "--" + name + "=" + f.Value.String()
		}
	}
	for gate, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if now := utilfeature.DefaultFeatureGate.Enabled(gate); now != spec.Default && !internalGates[gate] {
			return fmt.Sprintf("feature gate %s=%t", gate, now)
		}
	}
	return ""
}

// KnownFlags returns the names of all flags of `knarr apiserver`.
var KnownFlags = sync.OnceValues(func() (map[string]bool, error) {
	help, err := exec.Command(os.Getenv("KNARR_BIN"), "apiserver", "--help-all").Output()
	if err != nil {
		return nil, fmt.Errorf("ask knarr for its flags: %w", err)
	}
	known := map[string]bool{}
	for _, match := range flagName.FindAllSubmatch(help, -1) {
		known[string(match[1])] = true
	}
	return known, nil
})

var flagName = regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z0-9-]+)`)

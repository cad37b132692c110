package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kernelDefaults are the kernel settings that upstream's kubelet wants (protectKernelDefaults).
var kernelDefaults = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// checkKernelDefaults returns an error for each kernel setting that differs. root is the folder of
// the settings, /proc/sys.
func checkKernelDefaults(root string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(kernelDefaults)) {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			errs = append(errs, fmt.Errorf("protectKernelDefaults: %w", err))
			continue
		}
		if is, want := strings.TrimSpace(string(data)), kernelDefaults[name]; is != want {
			name = strings.ReplaceAll(name, "/", ".")
			errs = append(errs, fmt.Errorf("protectKernelDefaults: the kernel setting %s is %s, and must be %s: sysctl -w %s=%s, or leave the field out", name, is, want, name, want))
		}
	}
	return errors.Join(errs...)
}

package cgroup

import (
	"os"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// LimitsSwap reports whether the kernel can limit the swap of a cgroup. It is not
// used with cgroup v1.
func LimitsSwap() bool { return V2() && limitsSwap(mountRoot) }

// limitsSwap looks for the file of the limit in a cgroup that has memory accounting. The root has
// no limits, so it looks one level below too.
func limitsSwap(root string) bool {
	accounts, _ := filepath.Glob(filepath.Join(root, "*", "memory.current"))
	accounts = append(accounts, filepath.Join(root, "memory.current"))
	for _, file := range accounts {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		_, err := os.Stat(filepath.Join(filepath.Dir(file), spec.SwapFile))
		return err == nil
	}
	return false
}

package stats

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// swapOf measures the swap of a cgroup; nil if the kernel does not account for swap.
func swapOf(cgroup string, now metav1.Time) *statsapi.SwapStats {
	if cgroups.IsCgroup2UnifiedMode() {
		return swapV2(folder(cgroup), now)
	}
	return swapV1(folder(cgroup), now)
}

func swapV2(dir string, now metav1.Time) *statsapi.SwapStats {
	used, ok := counted(dir, "memory.swap.current")
	if !ok {
		return nil
	}
	out := &statsapi.SwapStats{Time: now, SwapUsageBytes: &used}
	if limit, ok := counted(dir, "memory.swap.max"); ok && limit < unlimited {
		out.SwapAvailableBytes = ptr(limit - min(used, limit))
	}
	return out
}

// swapV1 subtracts the memory from the sum of memory and swap, since cgroup v1 counts only the sum.
func swapV1(dir string, now metav1.Time) *statsapi.SwapStats {
	both, ok := counted(dir, "memory.memsw.usage_in_bytes")
	alone, ok2 := counted(dir, "memory.usage_in_bytes")
	if !ok || !ok2 {
		return nil
	}
	used := both - min(alone, both)
	out := &statsapi.SwapStats{Time: now, SwapUsageBytes: &used}
	both, ok = counted(dir, "memory.memsw.limit_in_bytes")
	alone, ok2 = counted(dir, "memory.limit_in_bytes")
	if ok && ok2 && both < unlimited && alone < unlimited {
		limit := both - min(alone, both)
		out.SwapAvailableBytes = ptr(limit - min(used, limit))
	}
	return out
}

// counted reads a file with one number; "max" and anything else is not one.
func counted(dir, name string) (uint64, bool) {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil
}

// swap converts from the runtime's type.
func swap(u *runtimeapi.SwapUsage) *statsapi.SwapStats {
	if u == nil || u.SwapUsageBytes == nil {
		return nil
	}
	return &statsapi.SwapStats{Time: metav1.Unix(0, u.Timestamp), SwapAvailableBytes: value(u.SwapAvailableBytes), SwapUsageBytes: value(u.SwapUsageBytes)}
}

package kubelet

import (
	"errors"

	"github.com/knarr-project/knarr/internal/kubelet/node"
)

// checkMemory refuses settings of swap and of the OOM killer that the machine cannot keep.
func checkMemory(c *Config, machine node.Machine, v2, limitsSwap bool) error {
	s := c.Settings
	limited := s.MemorySwap.SwapBehavior == "LimitedSwap"
	switch {
	case *s.FailSwapOn && machine.Swap > 0:
		return errors.New("failSwapOn is true, and this machine has swap: turn it off (swapoff -a), or leave the field out")
	case *s.FailSwapOn && limited:
		return errors.New("memorySwap.swapBehavior: LimitedSwap is not usable with failSwapOn: true: leave out one of them")
	case limited && !v2:
		return errors.New("memorySwap.swapBehavior: LimitedSwap is not usable with cgroup v1: NoSwap, or mount cgroup v2 alone")
	case limited && !limitsSwap:
		return errors.New("memorySwap.swapBehavior: LimitedSwap is not usable: this kernel does not limit the swap of cgroups (memory.swap.max)")
	case s.SingleProcessOOMKill != nil && !*s.SingleProcessOOMKill && !v2:
		return errors.New("singleProcessOOMKill: false is not usable with cgroup v1: true, or leave the field out")
	}
	return nil
}

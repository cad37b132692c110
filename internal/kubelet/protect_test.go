package kubelet

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/cgroup"
)

func TestSomethingIsReservedByDefault(t *testing.T) {
	for name, c := range map[string]struct{ memory, pids, wantMemory, wantPIDs int64 }{
		"a small machine":      {256 << 20, 1000, 64 << 20, 250},
		"a middle one":         {4 << 30, 32768, 4 << 30 / 20, 1638},
		"a large one":          {256 << 30, 4 << 20, 512 << 20, 4096},
		"one with few to give": {1 << 30, 2000, 128 << 20, 256},
	} {
		t.Run(name, func(t *testing.T) {
			list := defaultReserved(c.memory, c.pids)
			pid := list["pid"]
			if got := list.Memory().Value(); got != c.wantMemory || pid.Value() != c.wantPIDs {
				t.Errorf("reserved %d bytes and %d processes", got, pid.Value())
			}
			if !list.Cpu().IsZero() {
				t.Error("CPU is reserved")
			}
		})
	}
}

func TestAllocatableIsLessThanTheCapacity(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.cfg.Settings.KubeReserved = map[string]string{"cpu": "100m", "memory": "64Mi"}
		b.cfg.Settings.SystemReserved = map[string]string{"memory": "36Mi"}
		b.cfg.Settings.EvictionHard = map[string]string{"memory.available": "28Mi"}
	})
	capacity, allocatable := b.k.node.Capacity(), b.k.node.Allocatable()
	if got := capacity.Memory().Value() - allocatable.Memory().Value(); got != 128<<20 {
		t.Errorf("%d bytes are kept from pods", got)
	}
	if got := capacity.Cpu().MilliValue() - allocatable.Cpu().MilliValue(); got != 100 {
		t.Errorf("%d thousandths of a core are kept from pods", got)
	}
	if all := b.k.podLimits(); all.Memory != capacity.Memory().Value()-100<<20 {
		t.Errorf("pods are limited to %d bytes: the threshold of evictions must be below the limit", all.Memory)
	}
}

func TestALeftoverCgroupIsRemovedLater(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups are made by root")
	}
	root := fmt.Sprintf("/knarr-test-kubelet-%d", os.Getpid())
	b := newBench(t)
	groups := &cgroup.Manager{Root: root}
	if err := groups.Ready(); err != nil {
		t.Skipf("this machine does not let cgroups be made: %v", err)
	}
	t.Cleanup(func() {
		if err := groups.RemoveAll(); err != nil {
			t.Error(err)
		}
	})
	gone, running := pod("gone"), b.create(pod("running"))
	gone.UID = types.UID("00000000-gone")
	b.await("running", "ready", ready)
	for _, p := range []*corev1.Pod{gone, running} {
		if _, err := groups.Ensure(p); err != nil {
			t.Fatal(err)
		}
	}
	b.stop()
	b.k.groups = groups
	b.k.sweepCgroups()
	if left := groups.Pods(); len(left) != 1 || left[0] != running.UID {
		t.Errorf("cgroups of %v are left, wanted the running pod's", left)
	}
}

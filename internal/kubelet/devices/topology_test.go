package devices

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/kubelet/fake"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

func TestHintsNameTheNodesWithEnoughDevices(t *testing.T) {
	for name, c := range map[string]struct {
		taken, wanted string
		want          string
	}{
		"one device is on either node":             {"0", "1", "0* 0,1 1*"},
		"two devices are on either node":           {"0", "2", "0* 0,1 1*"},
		"three devices need both nodes":            {"0", "3", "0,1*"},
		"a node with too few free devices is left": {"1", "2", "0,1 1*"},
		"too many devices have no hint":            {"0", "5", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.plug(&fake.DevicePlugin{}, fake.Device("a", 0), fake.Device("b", 0), fake.Device("c", 1), fake.Device("d", 1))
			if err := b.allocate(pod("other", "main "+c.taken)); err != nil {
				t.Fatal(err)
			}
			p := pod("one", "main "+c.wanted)
			for scope, hints := range map[string]topology.Hints{
				"container": b.Provider().Hints(p, &p.Spec.Containers[0]), "pod": b.Provider().PodHints(p),
			} {
				var got []string
				for _, h := range hints[gpu] {
					mark := ""
					if h.Preferred {
						mark = "*"
					}
					got = append(got, fmt.Sprint(h.Nodes, mark))
				}
				slices.Sort(got)
				if text := strings.Join(got, " "); text != c.want {
					t.Errorf("%s: hints %q, want %q", scope, text, c.want)
				}
			}
		})
	}
}

func TestDevicesAreChosenOnTheWantedNodes(t *testing.T) {
	b := newBench(t)
	b.plug(&fake.DevicePlugin{}, fake.Device("a", 0), fake.Device("b", 1))
	p := pod("one", "main 1")
	if err := b.Provider().Allocate(p, &p.Spec.Containers[0], topology.Hint{Nodes: topology.Nodes(1)}); err != nil {
		t.Fatal(err)
	}
	if err := b.allocate(p); err != nil || b.given(p) != "main=b" {
		t.Errorf("given %q, %v", b.given(p), err)
	}
}

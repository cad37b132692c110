package wasm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// unversioned returns a guest without the export knarr_node_version.
func unversioned(module []byte) []byte {
	return bytes.ReplaceAll(module, []byte(exports[nodeVersion].name), []byte("other_node_version"))
}

func TestAGuestSeesTheLatestVersionOfANode(t *testing.T) {
	for name, module := range map[string][]byte{"with versions": built(t), "without versions": unversioned(built(t))} {
		t.Run(name, func(t *testing.T) {
			p := load(t, module, Settings{})
			if p.has[nodeVersion] != (name == "with versions") {
				t.Fatal("the guest is another one")
			}
			for i, disk := range []string{"ssd", "hdd", "ssd", "", "ssd"} {
				snapshot := nodes(map[string]string{"example.com/disk": disk, "example.com/points": fmt.Sprint(i)})
				for range 2 {
					state, pod := framework.State{}, podInfo("pod", map[string]string{"example.com/disk": "ssd"})
					p.PreFilter(state, pod, snapshot)
					if status := p.Filter(state, pod, snapshot.Nodes.At(0)); status.OK() != (disk == "ssd") {
						t.Errorf("version %d with the disk %q: %v", i, disk, status)
					}
					if points, status := p.Score(state, pod, snapshot.Nodes.At(0)); points != int64(i) || !status.OK() {
						t.Errorf("version %d: the score is %d, %v", i, points, status)
					}
					state.End()
				}
			}
			if p.pool.live != 1 {
				t.Errorf("there are %d instances", p.pool.live)
			}
		})
	}
}

// This guest reads the version at 64, and the test writes the right one to 0. Each call leaves a
// wrong version behind.
func TestTheVersionIsWrittenBeforeEachCall(t *testing.T) {
	load32 := func(at int32) []byte { return join(constI32(at), []byte{0x28, 2, 0}) }
	spoil := join(constI32(64), constI32(-1), []byte{0x36, 2, 0})
	p := load(t, assemble(nil,
		defined{"knarr_node_version", toI32, constI32(64)},
		// The code is the version: success without a node.
		defined{"prefilter", toI32, join(load32(64), spoil)},
		// The code is whether they differ.
		defined{"filter", toI32, join(load32(64), load32(0), []byte{0x47}, spoil)},
	), Settings{})
	info := framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node0"}})
	snapshot := framework.NewSnapshot([]*framework.NodeInfo{info}, nil, nil)
	for range 3 {
		state, pod := framework.State{}, podInfo("pod", nil)
		if _, status := p.PreFilter(state, pod, snapshot); !status.OK() {
			t.Fatalf("prefilter has a version: %v", status)
		}
		in := state[p.settings.Name].(*cycle).instance
		in.memory.WriteUint32Le(0, uint32(info.Version()))
		if status := p.Filter(state, pod, snapshot.Nodes.At(0)); !status.OK() {
			t.Errorf("filter has another version: %v", status)
		}
		state.End()
	}
}

func TestNodesThatAreRefusedForOneReasonShareAStatus(t *testing.T) {
	// Its reason is the node's name.
	p := load(t, assemble([]imported{{moduleScheduler, "currentNodeName", read2}, {moduleScheduler, "result.status_reason", write2}},
		defined{"filter", toI32, join(callImport(0, 64, 64), []byte{0x1a}, callImport(1, 64, 5), constI32(2))},
	), Settings{})
	snapshot := nodes(nil, nil)
	state, pod := framework.State{}, podInfo("pod", nil)
	defer state.End()
	p.PreFilter(state, pod, snapshot)
	var last *framework.Status
	for _, at := range []int{0, 0, 1, 1, 0} {
		status := p.Filter(state, pod, snapshot.Nodes.At(at))
		if want := fmt.Sprintf("node%d (plugin guest)", at); strings.Join(status.Reasons, "") != want || status.Code != framework.Unschedulable {
			t.Errorf("the status is %v, want %s", status, want)
		}
		if same := last != nil && last.Reasons[0] == status.Reasons[0]; same != (last == status) {
			t.Errorf("the status is shared: %t", last == status)
		}
		last = status
	}
}

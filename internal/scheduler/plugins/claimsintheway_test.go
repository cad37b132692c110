package plugins_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// withConditions gives the claim a device that must be attached, and its conditions.
func withConditions(conditions ...string) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{
			Request: "r", Driver: "d", Pool: "a", Device: "x", BindingConditions: []string{"Attached"}, BindingFailureConditions: []string{"Broken"},
		}}
		status := resourcev1.AllocatedDeviceStatus{Driver: "d", Pool: "a", Device: "x"}
		for _, name := range conditions {
			status.Conditions = append(status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue})
		}
		c.Status.Devices = []resourcev1.AllocatedDeviceStatus{status}
	}
}

// TestClaimsInTheWay checks from which claims devices may be taken for a pod.
func TestClaimsInTheWay(t *testing.T) {
	leftover := resourceClaim("leftover", "gpu", allocatedOn("a"))
	withLeftover := newRack(map[string]string{"a": "x"})
	withLeftover.class["gpu"].Spec.ExtendedResourceName = new(string(gpus))
	withLeftover.leftover = leftover
	large := wanting(1, gpus)
	large.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("100")
	nominated := pod("nominated")
	nominated.Spec.Priority = new(int32(10))
	for name, tc := range map[string]struct {
		rack      *rack
		pod       *corev1.Pod
		nominated *corev1.Pod // for node a
		want      string      // the claims, and the node or message
	}{
		"a claim with devices elsewhere is in the way": {
			rack: newRack(map[string]string{"a": "x", "b": "x"}).with(resourceClaim("c", "gpu", allocatedOn("z")), resourceClaim("d", "gpu")), pod: claiming("c", "d"),
			want: "[c] 0/2 nodes are available: 2 resourceclaim not available on the node.",
		},
		"it is not in the way where other claims get no devices": {
			rack: newRack(nil).with(resourceClaim("c", "gpu", allocatedOn("z")), resourceClaim("d", "gpu")), pod: claiming("c", "d"),
			want: "[] 0/2 nodes are available: 2 cannot allocate all claims.",
		},
		"it is in the way where another pod is nominated": {
			rack: newRack(nil).with(resourceClaim("c", "gpu", allocatedOn("z"))), pod: claiming("c"), nominated: nominated,
			want: "[c] 0/2 nodes are available: 2 resourceclaim not available on the node.",
		},
		"a claim whose device failed is in the way": {
			rack: newRack(nil).with(resourceClaim("c", "gpu", allocatedOn("a"), withConditions("Broken"))), pod: claiming("c"),
			want: "[c] 0/2 nodes are available: 2 resourceclaim not available on the node.",
		},
		"a claim whose device is not ready is usable": {
			rack: newRack(nil).with(resourceClaim("c", "gpu", allocatedOn("a"), withConditions())), pod: claiming("c"),
			want: "[c] a", // node b refuses
		},
		"the claim of an earlier attempt is, wherever the pod is refused": {
			rack: withLeftover, pod: large, want: "[leftover] 0/2 nodes are available: 2 Insufficient cpu.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputOf(tc.rack, tc.pod)
			if tc.nominated != nil {
				in.Nominated = map[string][]*framework.PodInfo{"a": {framework.NewPodInfo(tc.nominated)}, "b": {framework.NewPodInfo(tc.nominated)}}
			}
			d := scheduler.Decide(in)
			var names []string
			if decided, ok := d.State[framework.DynamicResources].(framework.DeviceDecisions); ok {
				for _, claim := range decided.InTheWay() {
					names = append(names, claim.Name)
				}
			}
			slices.Sort(names)
			said := d.Node
			if said == "" {
				said = d.Message()
			}
			if got := fmt.Sprint("[", strings.Join(names, " "), "] ", said); got != tc.want {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func inputOf(r *rack, p *corev1.Pod) scheduler.Input {
	snapshot := snapshotOf(nil, []*corev1.Node{node("a", nil), node("b", nil)}, nil)
	snapshot.Devices = func() (framework.Devices, error) { return r, nil }
	profile := plugins.Default(corev1.DefaultSchedulerName)
	return scheduler.Input{Snapshot: snapshot, Pod: framework.NewPodInfo(p), Profile: &profile, Explain: true}
}

// TestAlternativesOfAllocatedClaimsCount checks that an allocated alternative scores on all nodes
// alike, so that the one still to choose weighs less.
func TestAlternativesOfAllocatedClaimsCount(t *testing.T) {
	allocated := resourceClaim("c", "", bigOrAny)
	allocated.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r/big", Driver: "d", Pool: "z", Device: "x"}}}}
	in := inputOf(newRack(map[string]string{"a": "x", "b": "big1"}).with(allocated, resourceClaim("d", "", bigOrAny)), claiming("c", "d"))
	d := scheduler.Decide(in)
	var p framework.ScorePlugin
	for _, s := range in.Profile.Scores {
		if s.Name() == framework.DynamicResources {
			p = s.ScorePlugin
		}
	}
	var nodes []*framework.NodeInfo
	for _, n := range in.Snapshot.Nodes.All() {
		nodes = append(nodes, n)
	}
	scores := make([]int64, len(nodes))
	for i, n := range nodes {
		scores[i], _ = p.Score(d.State, in.Pod, n)
	}
	p.(framework.NormalizePlugin).Normalize(d.State, in.Pod, nodes, scores)
	const a, b = 100 * (8 + 7) / (8 + 8), 100 // the first of up to 8 alternatives scores 8
	if d.Node != "b" || !slices.Equal(scores, []int64{a, b}) {
		t.Errorf("decided %q with the scores %v, want %v", d.Node, scores, []int64{a, b})
	}
}

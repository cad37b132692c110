package plugins

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// resourcesFit refuses nodes without room. A node with more room left scores higher
// (LeastAllocated).
type resourcesFit struct{ plugin }

// PreFilter finds out which extended resources device classes provide. Without any, it keeps no
// state.
func (p resourcesFit) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	byClass, err := delegates(pod, snapshot)
	if err != nil {
		return nil, framework.Fail(err)
	}
	if len(byClass) > 0 {
		state[p.Name()] = byClass
	}
	return nil, nil
}

func (p resourcesFit) Filter(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	want, used, have := &pod.Requests, &node.Requested, &node.Allocatable
	var short shortage
	if int64(len(node.Pods))+1 > have.Pods {
		short.add("Too many pods", false)
	}
	short.check("Insufficient cpu", want.MilliCPU, used.MilliCPU, have.MilliCPU)
	short.check("Insufficient memory", want.Memory, used.Memory, have.Memory)
	short.check("Insufficient ephemeral-storage", want.EphemeralStorage, used.EphemeralStorage, have.EphemeralStorage)
	if len(want.Scalar) > 0 {
		byClass, _ := state[p.Name()].(delegated)
		for _, name := range slices.Sorted(maps.Keys(want.Scalar)) {
			if byClass[name] && byDevices(node, name) {
				continue
			}
			if n := want.Scalar[name]; n > have.Scalar[name]-used.Scalar[name] {
				short.check("Insufficient "+string(name), n, used.Scalar[name], have.Scalar[name])
			}
		}
	}
	return short.status()
}

// shortage collects the resources that a node does not have.
type shortage struct {
	reasons [4]string
	count   int
	more    []string
	never   bool // some resource does not suffice without other pods either
}

func (s *shortage) check(reason string, want, used, have int64) {
	if want != 0 && want > have-used {
		s.add(reason, want > have)
	}
}

func (s *shortage) add(reason string, never bool) {
	s.never = s.never || never
	if s.count < len(s.reasons) {
		s.reasons[s.count] = reason
		s.count++
	} else {
		s.more = append(s.more, reason)
	}
}

func (s *shortage) status() *framework.Status {
	switch {
	case s.count == 0:
		return nil
	case s.count == 1 && !s.never && shortOf[s.reasons[0]] != nil:
		return shortOf[s.reasons[0]]
	}
	code := framework.Unschedulable
	if s.never {
		code = framework.UnschedulableAndUnresolvable
	}
	return &framework.Status{Code: code, Plugin: "NodeResourcesFit", Reasons: append(slices.Clone(s.reasons[:s.count]), s.more...)}
}

// shortOf has the shared statuses of nodes that are full in one way.
var shortOf = map[string]*framework.Status{
	"Too many pods":       refusal("NodeResourcesFit", framework.Unschedulable, "Too many pods"),
	"Insufficient cpu":    refusal("NodeResourcesFit", framework.Unschedulable, "Insufficient cpu"),
	"Insufficient memory": refusal("NodeResourcesFit", framework.Unschedulable, "Insufficient memory"),
}

func (resourcesFit) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeAllocatable | framework.PodRemoved | framework.PodScaledDown | framework.SelfChanged |
		framework.DeviceClassChanged
}

func (resourcesFit) Score(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	var sum, resources int64
	add := func(want, used, have int64) {
		if have == 0 {
			return // the node does not report the resource
		}
		resources++
		if used+want <= have {
			sum += (have - used - want) * framework.MaxNodeScore / have
		}
	}
	add(pod.Scored.MilliCPU, node.Scored.MilliCPU, node.Allocatable.MilliCPU)
	add(pod.Scored.Memory, node.Scored.Memory, node.Allocatable.Memory)
	if resources == 0 {
		return 0, nil
	}
	return sum / resources, nil
}

// balanced prefers nodes whose CPU and memory the pod brings to similar proportions.
type balanced struct{ plugin }

// Score compares the node with the pod to the node without it: 75 means no change, 100 the largest
// improvement, 50 the opposite. A pod without requests changes nothing on any node.
func (balanced) Score(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	if pod.Requests.MilliCPU == 0 && pod.Requests.Memory == 0 {
		return 0, nil
	}
	with := balance(node, pod.Requests.MilliCPU, pod.Requests.Memory)
	without := balance(node, 0, 0)
	const half = framework.MaxNodeScore / 2
	return half + (half+with-without)/2, nil
}

// balance is MaxNodeScore if the same proportion of CPU and memory is used.
func balance(node *framework.NodeInfo, cpu, memory int64) int64 {
	if node.Allocatable.MilliCPU == 0 || node.Allocatable.Memory == 0 {
		return framework.MaxNodeScore // there is only one proportion
	}
	part := func(used, have int64) float64 { return min(1, float64(used)/float64(have)) }
	difference := part(node.Requested.MilliCPU+cpu, node.Allocatable.MilliCPU) - part(node.Requested.Memory+memory, node.Allocatable.Memory)
	return int64((1 - math.Abs(difference/2)) * float64(framework.MaxNodeScore))
}

// imageLocality prefers nodes that already have the pod's large images. An image counts less if
// only few nodes have it, so that pods do not all go to the first node.
type imageLocality struct{ plugin }

// An image counts with at least the first size and at most the second one, for each container.
const (
	minImageBytes int64 = 23 << 20
	maxImageBytes int64 = 1000 << 20
)

// wantedImages are the images of the pod's containers and volumes that some node has. An image that
// two containers use counts twice.
type wantedImages struct {
	images     []wantedImage
	containers int64
}

type wantedImage struct {
	name   string  // with the tag
	spread float64 // share of the nodes that have it
}

func (imageLocality) PreScore(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	wanted := wantedImages{containers: int64(len(pod.Pod.Spec.InitContainers) + len(pod.Pod.Spec.Containers))}
	for _, name := range imagesOf(pod.Pod) {
		// An image that no node has counts for nothing anywhere.
		if have := snapshot.NodesWithImage(name); have > 0 {
			wanted.images = append(wanted.images, wantedImage{name, float64(have) / float64(snapshot.Nodes.Len())})
		}
	}
	if len(wanted.images) == 0 {
		return skip
	}
	state["ImageLocality"] = &wanted
	return nil
}

func (imageLocality) Score(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	wanted, ok := state["ImageLocality"].(*wantedImages)
	if !ok {
		return 0, nil
	}
	var sum int64
	for i := range wanted.images {
		sum += int64(float64(node.Images[wanted.images[i].name]) * wanted.images[i].spread)
	}
	most := maxImageBytes * wanted.containers
	sum = min(max(sum, minImageBytes), most)
	if most <= minImageBytes {
		return 0, nil
	}
	return framework.MaxNodeScore * (sum - minImageBytes) / (most - minImageBytes), nil
}

// normalizedImage adds the default tag to an image name without one.
func normalizedImage(image string) string {
	if strings.LastIndexByte(image, ':') <= strings.LastIndexByte(image, '/') {
		return image + ":latest"
	}
	return image
}

// imagesOf returns the images of the pod's containers and volumes.
func imagesOf(pod *corev1.Pod) []string {
	out := make([]string, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			out = append(out, normalizedImage(containers[i].Image))
		}
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			out = append(out, normalizedImage(image.Reference))
		}
	}
	return out
}

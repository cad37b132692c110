package plugins

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// resourcesFit refuses nodes without room. A node with more room left scores higher
// (LeastAllocated).
type resourcesFit struct{ plugin }

func (resourcesFit) Filter(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	var short []string
	var never bool
	check := func(name string, want, used, have int64) {
		if want == 0 || want <= have-used {
			return
		}
		short = append(short, "Insufficient "+name)
		never = never || want > have
	}
	if int64(len(node.Pods))+1 > node.Allocatable.Pods {
		short = append(short, "Too many pods")
	}
	check("cpu", pod.Requests.MilliCPU, node.Requested.MilliCPU, node.Allocatable.MilliCPU)
	check("memory", pod.Requests.Memory, node.Requested.Memory, node.Allocatable.Memory)
	check("ephemeral-storage", pod.Requests.EphemeralStorage, node.Requested.EphemeralStorage, node.Allocatable.EphemeralStorage)
	for name, want := range pod.Requests.Scalar {
		check(string(name), want, node.Requested.Scalar[name], node.Allocatable.Scalar[name])
	}
	switch {
	case len(short) == 0:
		return nil
	case never:
		return framework.RefuseAlways(short...)
	default:
		return framework.Refuse(short...)
	}
}

func (resourcesFit) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeAllocatable | framework.PodRemoved | framework.PodScaledDown | framework.SelfChanged
}

func (resourcesFit) Score(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	free := func(want, used, have int64) int64 {
		if have == 0 || used+want > have {
			return 0
		}
		return (have - used - want) * framework.MaxNodeScore / have
	}
	cpu := free(pod.Scored.MilliCPU, node.Scored.MilliCPU, node.Allocatable.MilliCPU)
	memory := free(pod.Scored.Memory, node.Scored.Memory, node.Allocatable.Memory)
	return (cpu + memory) / 2, nil
}

// balanced prefers nodes whose CPU and memory would be used in similar proportions.
type balanced struct{ plugin }

func (balanced) Score(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	part := func(want, used, have int64) float64 {
		if have == 0 {
			return 1
		}
		return math.Min(1, float64(used+want)/float64(have))
	}
	cpu := part(pod.Requests.MilliCPU, node.Requested.MilliCPU, node.Allocatable.MilliCPU)
	memory := part(pod.Requests.Memory, node.Requested.Memory, node.Allocatable.Memory)
	return int64((1 - math.Abs(cpu-memory)/2) * float64(framework.MaxNodeScore)), nil
}

// imageLocality prefers nodes that already have the pod's large images. An image counts less if
// only few nodes have it, so that pods do not all go to the first node.
type imageLocality struct{ plugin }

// An image counts with at least the first size and at most the second one, for each container.
const (
	minImageBytes int64 = 23 << 20
	maxImageBytes int64 = 1000 << 20
)

// wantedImages are the images of the pod's containers that some node has. An image that two
// containers use counts twice.
type wantedImages struct {
	images     []wantedImage
	containers int64
}

type wantedImage struct {
	names  [2]string // as in the pod, and with the tag
	spread float64   // share of the nodes that have it
}

func (imageLocality) PreScore(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	var wanted wantedImages
	for _, containers := range [][]corev1.Container{pod.Pod.Spec.InitContainers, pod.Pod.Spec.Containers} {
		wanted.containers += int64(len(containers))
		for i := range containers {
			image := wantedImage{names: [2]string{containers[i].Image, normalizedImage(containers[i].Image)}}
			var have int
			for _, n := range snapshot.Nodes {
				if image.bytes(n) > 0 {
					have++
				}
			}
			if have > 0 { // otherwise it counts for nothing anywhere
				image.spread = float64(have) / float64(len(snapshot.Nodes))
				wanted.images = append(wanted.images, image)
			}
		}
	}
	if len(wanted.images) == 0 {
		return &framework.Status{Code: framework.Skip}
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
		sum += int64(float64(wanted.images[i].bytes(node)) * wanted.images[i].spread)
	}
	most := maxImageBytes * wanted.containers
	sum = min(max(sum, minImageBytes), most)
	if most <= minImageBytes {
		return 0, nil
	}
	return framework.MaxNodeScore * (sum - minImageBytes) / (most - minImageBytes), nil
}

func (w *wantedImage) bytes(n *framework.NodeInfo) int64 {
	if len(n.Images) == 0 {
		return 0
	}
	if size, ok := n.Images[w.names[0]]; ok {
		return size
	}
	return n.Images[w.names[1]]
}

// normalizedImage adds the default tag to an image name without one.
func normalizedImage(image string) string {
	for i := len(image) - 1; i >= 0 && image[i] != '/'; i-- {
		if image[i] == ':' || image[i] == '@' {
			return image
		}
	}
	return fmt.Sprintf("%s:latest", image)
}

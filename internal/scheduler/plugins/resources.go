package plugins

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// resourcesFit: the node must have room; a node with more room left scores higher (LeastAllocated).
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

// balanced: a node whose CPU and memory would be used in like parts scores higher.
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

// imageLocality: a node that has the pod's large images already scores higher; an image that is on few nodes counts
// less, so that not everything is drawn to the first node.
type imageLocality struct{ plugin }

// Sizes between which image locality counts, per container.
const (
	minImageBytes int64 = 23 << 20
	maxImageBytes int64 = 1000 << 20
)

// wantedImages are the images of a pod's containers that some node has; one that two containers have is there twice.
type wantedImages struct {
	images     []wantedImage
	containers int64
}

type wantedImage struct {
	names  [2]string // as the pod says it, and in full
	spread float64   // the share of the nodes that have it
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
			if have > 0 { // else it is worth nothing anywhere
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

// normalizedImage adds the tag that an image name without one means.
func normalizedImage(image string) string {
	for i := len(image) - 1; i >= 0 && image[i] != '/'; i-- {
		if image[i] == ':' || image[i] == '@' {
			return image
		}
	}
	return fmt.Sprintf("%s:latest", image)
}

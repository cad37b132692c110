package plugins

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// configuredFit is NodeResourcesFit with other arguments than the default ones.
type configuredFit struct {
	resourcesFit
	ignored       []string
	ignoredGroups []string
	resources     []configv1.ResourceSpec
	// score of one resource from the amounts that would be used and that exist.
	score func(used, have int64) int64
	// skipZero leaves resources with the score 0 out of the average.
	skipZero bool
}

// newFit returns the plugin for its arguments; nil means the default ones.
func newFit(args runtime.Object, _ framework.Handle) (framework.Plugin, error) {
	base := resourcesFit{"NodeResourcesFit"}
	a, ok := args.(*configv1.NodeResourcesFitArgs)
	if !ok || a.ScoringStrategy.Type == configv1.LeastAllocated && onlyCPUAndMemory(a.ScoringStrategy.Resources) && len(a.IgnoredResources)+len(a.IgnoredResourceGroups) == 0 {
		return base, nil
	}
	f := &configuredFit{resourcesFit: base, ignored: a.IgnoredResources, ignoredGroups: a.IgnoredResourceGroups, resources: a.ScoringStrategy.Resources}
	switch a.ScoringStrategy.Type {
	case configv1.MostAllocated:
		f.score = mostAllocated
	case configv1.RequestedToCapacityRatio:
		f.score, f.skipZero = byShape(a.ScoringStrategy.RequestedToCapacityRatio.Shape), true
	default:
		f.score = leastAllocated
	}
	return f, nil
}

func onlyCPUAndMemory(list []configv1.ResourceSpec) bool {
	return slices.Equal(list, []configv1.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}})
}

// Filter leaves the ignored resources of the pod out.
func (f *configuredFit) Filter(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return f.resourcesFit.Filter(state, f.without(pod), node)
}

// without returns the pod without its ignored resources.
func (f *configuredFit) without(pod *framework.PodInfo) *framework.PodInfo {
	less := pod
	for name := range pod.Requests.Scalar {
		if !f.ignores(string(name)) {
			continue
		}
		if less == pod {
			c := *pod
			c.Requests.Scalar = map[corev1.ResourceName]int64{}
			for n, v := range pod.Requests.Scalar {
				c.Requests.Scalar[n] = v
			}
			less = &c
		}
		delete(less.Requests.Scalar, name)
	}
	return less
}

func (f *configuredFit) ignores(name string) bool {
	group, _, grouped := strings.Cut(name, "/")
	return slices.Contains(f.ignored, name) || grouped && slices.Contains(f.ignoredGroups, group)
}

// Score is the weighted average of the resources' scores.
func (f *configuredFit) Score(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	var sum, weights int64
	for i := range f.resources {
		r := &f.resources[i]
		want, used, have := scored(r.Name, pod, node)
		if have == 0 || want == 0 && isScalar(r.Name) {
			continue
		}
		score := f.score(used+want, have)
		if f.skipZero && score <= 0 {
			continue
		}
		sum += score * r.Weight
		weights += r.Weight
	}
	switch {
	case weights == 0:
		return 0, nil
	case f.skipZero:
		return int64(math.Round(float64(sum) / float64(weights))), nil
	default:
		return sum / weights, nil
	}
}

// scored returns the amounts of a resource with defaults for containers without requests.
func scored(name string, pod *framework.PodInfo, node *framework.NodeInfo) (want, used, have int64) {
	have = amount(&node.Allocatable, name)
	if name == string(corev1.ResourceCPU) || name == string(corev1.ResourceMemory) {
		return amount(&pod.Scored, name), amount(&node.Scored, name), have
	}
	return amount(&pod.Requests, name), amount(&node.Requested, name), have
}

// isScalar reports whether the resource is none of those that every node has.
func isScalar(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return false
	}
	return true
}

func amount(r *framework.Resources, name string) int64 {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU:
		return r.MilliCPU
	case corev1.ResourceMemory:
		return r.Memory
	case corev1.ResourceEphemeralStorage:
		return r.EphemeralStorage
	case corev1.ResourcePods:
		return r.Pods
	}
	return r.Scalar[corev1.ResourceName(name)]
}

func leastAllocated(used, have int64) int64 {
	if used > have {
		return 0
	}
	return (have - used) * framework.MaxNodeScore / have
}

func mostAllocated(used, have int64) int64 { return min(used, have) * framework.MaxNodeScore / have }

// maxShapeScore is the highest score of a shape in a configuration.
const maxShapeScore = 10

// byShape interpolates between the points of a shape.
func byShape(shape []configv1.UtilizationShapePoint) func(used, have int64) int64 {
	at := func(i int) (utilization, score int64) {
		return int64(shape[i].Utilization), int64(shape[i].Score) * framework.MaxNodeScore / maxShapeScore
	}
	return func(used, have int64) int64 {
		percent := int64(100)
		if used <= have {
			percent = used * 100 / have
		}
		for i := range shape {
			x, y := at(i)
			if percent > x {
				continue
			}
			if i == 0 {
				return y
			}
			x0, y0 := at(i - 1)
			return y0 + (y-y0)*(percent-x0)/(x-x0)
		}
		_, last := at(len(shape) - 1)
		return last
	}
}

// configuredBalance is NodeResourcesBalancedAllocation with other resources than CPU and memory.
type configuredBalance struct {
	balanced
	resources []configv1.ResourceSpec
}

func newBalance(args runtime.Object, _ framework.Handle) (framework.Plugin, error) {
	base := balanced{"NodeResourcesBalancedAllocation"}
	a, ok := args.(*configv1.NodeResourcesBalancedAllocationArgs)
	if !ok || onlyCPUAndMemory(a.Resources) {
		return base, nil
	}
	return &configuredBalance{base, a.Resources}, nil
}

// PreScore skips pods that request none of the resources.
func (b *configuredBalance) PreScore(_ framework.State, pod *framework.PodInfo, _ *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	for _, r := range b.resources {
		if amount(&pod.Requests, r.Name) > 0 {
			return nil
		}
	}
	return &framework.Status{Code: framework.Skip}
}

// Score is high if the pod makes the use of the resources more even.
func (b *configuredBalance) Score(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	var with, without []float64
	for _, r := range b.resources {
		want, used, have := amount(&pod.Requests, r.Name), amount(&node.Requested, r.Name), amount(&node.Allocatable, r.Name)
		if have == 0 || want == 0 && isScalar(r.Name) {
			continue
		}
		with = append(with, math.Min(1, float64(used+want)/float64(have)))
		without = append(without, math.Min(1, float64(used)/float64(have)))
	}
	half := framework.MaxNodeScore / 2
	return half + (half+evenness(with)-evenness(without))/2, nil
}

// evenness is MaxNodeScore for equal fractions, and falls with their standard deviation.
func evenness(fractions []float64) int64 {
	var sum, squares float64
	for _, f := range fractions {
		sum += f
	}
	mean := sum / float64(len(fractions))
	for _, f := range fractions {
		squares += (f - mean) * (f - mean)
	}
	deviation := 0.0
	switch {
	case len(fractions) == 2:
		deviation = math.Abs(fractions[0]-fractions[1]) / 2
	case len(fractions) > 2:
		deviation = math.Sqrt(squares / float64(len(fractions)))
	}
	return int64((1 - deviation) * float64(framework.MaxNodeScore))
}

package autoscale

import (
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/controller"
)

// Limits for young pods, the defaults of upstream's flags.
const (
	// cpuInitialization is the time after a pod's start during which its CPU sample counts only if
	// the pod is ready and the sample was taken since.
	cpuInitialization = 5 * time.Minute
	// initialReadiness is the time after its start during which a pod that was never ready counts
	// as starting.
	initialReadiness = 30 * time.Second
)

// defaultTolerance is the relative distance from the target that causes no scaling.
const defaultTolerance = 0.1

// sample is the usage of one pod at the end of a measuring window, in thousandths of the metric's
// unit.
type sample struct {
	value  int64
	at     time.Time
	window time.Duration
}

// tolerance is the relative distance above and below the target that causes no scaling.
type tolerance struct{ up, down float64 }

func (t tolerance) within(ratio float64) bool { return ratio <= 1+t.up && ratio >= 1-t.down }

// tolerances returns the behavior's tolerances, or the defaults.
func tolerances(b *autoscalingv2.HorizontalPodAutoscalerBehavior) tolerance {
	t := tolerance{defaultTolerance, defaultTolerance}
	if b == nil {
		return t
	}
	if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
		t.up = b.ScaleUp.Tolerance.AsApproximateFloat64()
	}
	if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
		t.down = b.ScaleDown.Tolerance.AsApproximateFloat64()
	}
	return t
}

// podGroups holds the pods of a target, grouped by the quality of their samples.
type podGroups struct {
	measured map[string]sample
	missing  []*corev1.Pod // no sample
	starting []*corev1.Pod // too young for a meaningful sample
}

// sortPods groups the pods. Pods that are being deleted or have failed do not count.
func sortPods(pods []*corev1.Pod, samples map[string]sample, cpu bool, now time.Time) podGroups {
	c := podGroups{measured: map[string]sample{}}
	for _, p := range pods {
		s, ok := samples[p.Name]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
		case p.Status.Phase == corev1.PodPending:
			c.starting = append(c.starting, p)
		case !ok:
			c.missing = append(c.missing, p)
		case cpu && stillStarting(p, s, now):
			c.starting = append(c.starting, p)
		default:
			c.measured[p.Name] = s
		}
	}
	return c
}

// stillStarting reports whether the pod's usage is that of its start, not of its work.
func stillStarting(p *corev1.Pod, s sample, now time.Time) bool {
	ready := controller.PodCondition(p, corev1.PodReady)
	if ready == nil || p.Status.StartTime == nil {
		return true
	}
	if p.Status.StartTime.Add(cpuInitialization).After(now) {
		return ready.Status == corev1.ConditionFalse || s.at.Before(ready.LastTransitionTime.Add(s.window))
	}
	return ready.Status == corev1.ConditionFalse && p.Status.StartTime.Add(initialReadiness).After(ready.LastTransitionTime.Time)
}

// measure returns the ratio of the pods' usage to the target.
type measure func(map[string]sample) (ratio float64, err error)

// replicasFor returns the number of pods that brings the ratio to one. Unknown usage is assumed to
// speak against a change: a pod without a sample counts with full usage before scaling down, and
// with none before scaling up. Starting pods count with no usage.
func replicasFor(current int32, c podGroups, of measure, full func(*corev1.Pod) int64, t tolerance) (int32, error) {
	ratio, err := of(c.measured)
	if err != nil {
		return 0, err
	}
	more := ratio > 1
	if len(c.missing) == 0 && (!more || len(c.starting) == 0) {
		if t.within(ratio) {
			return current, nil
		}
		return int32(math.Ceil(ratio * float64(len(c.measured)))), nil
	}
	all := map[string]sample{}
	for name, s := range c.measured {
		all[name] = s
	}
	for _, p := range c.missing {
		if more {
			all[p.Name] = sample{}
		} else {
			all[p.Name] = sample{value: full(p)}
		}
	}
	if more {
		for _, p := range c.starting {
			all[p.Name] = sample{}
		}
	}
	careful, err := of(all)
	if err != nil {
		return 0, err
	}
	if t.within(careful) || more != (careful > 1) {
		return current, nil
	}
	replicas := int32(math.Ceil(careful * float64(len(all))))
	if (careful < 1 && replicas > current) || (careful > 1 && replicas < current) {
		return current, nil // the assumptions alone would cause this change
	}
	return replicas, nil
}

// average measures against an average value per pod.
func average(target int64) measure {
	return func(samples map[string]sample) (float64, error) {
		if len(samples) == 0 || target == 0 {
			return 0, fmt.Errorf("no metrics to compare with the target")
		}
		return float64(mean(samples)) / float64(target), nil
	}
}

func mean(samples map[string]sample) int64 {
	if len(samples) == 0 {
		return 0
	}
	sum := int64(0)
	for _, s := range samples {
		sum += s.value
	}
	return sum / int64(len(samples))
}

// utilization measures the percentage of the pods' requests.
func utilization(requests map[string]int64, target int32) measure {
	return func(samples map[string]sample) (float64, error) {
		percent, err := percentUsed(samples, requests)
		return float64(percent) / float64(target), err
	}
}

func percentUsed(samples map[string]sample, requests map[string]int64) (int32, error) {
	used, requested := int64(0), int64(0)
	for name, s := range samples {
		if r, ok := requests[name]; ok {
			used += s.value
			requested += r
		}
	}
	if requested == 0 {
		return 0, fmt.Errorf("no metrics returned matched known pods")
	}
	return int32(used * 100 / requested), nil
}

// requestsOf returns each pod's request of a resource in thousandths, of one container or of all.
func requestsOf(pods []*corev1.Pod, resource corev1.ResourceName, container string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, p := range pods {
		sum, found := int64(0), false
		if p.Spec.Resources != nil && container == "" {
			if q, ok := p.Spec.Resources.Requests[resource]; ok {
				out[p.Name] = q.MilliValue()
				continue
			}
		}
		add := func(c corev1.Container) error {
			if container != "" && c.Name != container {
				return nil
			}
			q, ok := c.Resources.Requests[resource]
			if !ok {
				return fmt.Errorf("missing request for %s in container %s of Pod %s", resource, c.Name, p.Name)
			}
			sum, found = sum+q.MilliValue(), true
			return nil
		}
		for _, c := range p.Spec.InitContainers {
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				if err := add(c); err != nil {
					return nil, err
				}
			}
		}
		for _, c := range p.Spec.Containers {
			if err := add(c); err != nil {
				return nil, err
			}
		}
		if !found {
			return nil, fmt.Errorf("container %s not found in Pod %s", container, p.Name)
		}
		out[p.Name] = sum
	}
	return out, nil
}

// replicasForTotal returns the number of pods that brings a value shared by all pods to its target:
// the ready pods times the ratio.
func replicasForTotal(current int32, pods []*corev1.Pod, value, target int64, t tolerance) (int32, error) {
	ratio := float64(value) / float64(target)
	ready := 0
	for _, p := range pods {
		if p.Status.Phase == corev1.PodRunning && controller.PodReady(p) {
			ready++
		}
	}
	switch {
	case current == 0:
		return int32(math.Ceil(ratio)), nil
	case t.within(ratio):
		return current, nil
	}
	return int32(math.Ceil(ratio * float64(ready))), nil
}

// replicasForShare returns the number of pods for which the total gives each pod the target's
// value.
func replicasForShare(current int32, total, target int64, t tolerance) int32 {
	if current > 0 && t.within(float64(total)/(float64(target)*float64(current))) {
		return current
	}
	return int32(math.Ceil(float64(total) / float64(target)))
}

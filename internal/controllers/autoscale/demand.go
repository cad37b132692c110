package autoscale

import (
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/controller"
)

// How young pods are looked at, as upstream's flags have it by default.
const (
	// cpuInitialization: a pod that started no longer ago than this counts only when it is ready and was measured since.
	cpuInitialization = 5 * time.Minute
	// initialReadiness: a pod that was never ready for this long after its start is still starting.
	initialReadiness = 30 * time.Second
)

// defaultTolerance is how far usage may be from the target, as a part of it, before anything is done.
const defaultTolerance = 0.1

// sample is what one pod used: thousandths of the metric's unit, at the end of a window.
type sample struct {
	value  int64
	at     time.Time
	window time.Duration
}

// tolerance is how much more, or less, than the target is still as wanted.
type tolerance struct{ up, down float64 }

func (t tolerance) within(ratio float64) bool { return ratio <= 1+t.up && ratio >= 1-t.down }

// tolerances are the ones that the behavior sets, or the usual ones.
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

// crowd is the pods of a target, by what is known about their use of a metric.
type crowd struct {
	measured map[string]sample
	missing  []*corev1.Pod // no sample
	starting []*corev1.Pod // too young for their sample to say anything
}

// sortPods puts pods into their places. Pods that are going or have failed count for nothing.
func sortPods(pods []*corev1.Pod, samples map[string]sample, cpu bool, now time.Time) crowd {
	c := crowd{measured: map[string]sample{}}
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

// stillStarting: what the pod uses is what starting takes, not what its work takes.
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

// measure gives the ratio of what a crowd uses to what it should.
type measure func(map[string]sample) (ratio float64, err error)

// replicasFor is how many pods bring the ratio to one. What is not known is taken to speak against a change: pods without a
// sample use all they should before fewer pods are wanted, and nothing before more are; starting pods use nothing.
func replicasFor(current int32, c crowd, of measure, full func(*corev1.Pod) int64, t tolerance) (int32, error) {
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
		return current, nil // the unknown pods are what makes the difference
	}
	return replicas, nil
}

// average measures against an average value for each pod.
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

// utilization measures the percentage of what pods requested.
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

// requestsOf is what each pod requests of a resource, in thousandths: of one container, or of all of them.
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

// replicasForTotal is how many pods bring a value that all of them share to the target: so many times the ready ones as
// it is too high.
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

// replicasForShare is how many pods have the target's value each when they share a total.
func replicasForShare(current int32, total, target int64, t tolerance) int32 {
	if current > 0 && t.within(float64(total)/(float64(target)*float64(current))) {
		return current
	}
	return int32(math.Ceil(float64(total) / float64(target)))
}

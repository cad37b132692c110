package autoscale

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// view is a round's knowledge about the target, apart from its metrics.
type view struct {
	a         *autoscalingv2.HorizontalPodAutoscaler
	scale     *autoscalingv1.Scale
	pods      []*corev1.Pod
	selector  labels.Selector
	tolerance tolerance
}

// proposal is the number of replicas that one metric demands.
type proposal struct {
	replicas int32
	name     string
	status   autoscalingv2.MetricStatus
}

// failure is the error of one metric; reason goes into the condition ScalingActive.
type failure struct {
	reason string
	err    error
}

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

// demand returns the number of pods that the metrics demand: the highest of all metrics. A metric
// that cannot be read forbids scaling down, since it might demand more. It does not forbid scaling
// up.
func (c *autoscaler) demand(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler, scale *autoscalingv1.Scale) (replicas int32, metric string, err error) {
	now := c.now()
	pods, selector, err := c.targetPods(a, scale)
	if err != nil {
		c.env.Events.Eventf(a, nil, corev1.EventTypeWarning, "InvalidSelector", "Scale", "%v", err)
		setCondition(a, now, autoscalingv2.ScalingActive, false, "InvalidSelector", "the HPA target's scale is missing a selector")
		return 0, "", err
	}
	v := view{a: a, scale: scale, pods: pods, selector: selector, tolerance: tolerances(a.Spec.Behavior)}
	var statuses []autoscalingv2.MetricStatus
	var failed *failure
	read := 0
	for i := range a.Spec.Metrics {
		p, f := c.evaluate(ctx, &v, &a.Spec.Metrics[i])
		if f != nil {
			c.env.Events.Eventf(a, nil, corev1.EventTypeWarning, f.reason, "Scale", "%v", f.err)
			if failed == nil {
				failed = f
			}
			statuses = append(statuses, autoscalingv2.MetricStatus{})
			continue
		}
		if statuses = append(statuses, p.status); read == 0 || p.replicas > replicas {
			replicas, metric = p.replicas, p.name
		}
		read++
	}
	if failed != nil && (read == 0 || replicas < scale.Spec.Replicas) {
		setCondition(a, now, autoscalingv2.ScalingActive, false, failed.reason, "the HPA was unable to compute the replica count: %v", failed.err)
		if read == 0 {
			a.Status.CurrentMetrics = nil
		}
		return 0, "", fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", len(a.Spec.Metrics)-read, len(a.Spec.Metrics), failed.err)
	}
	a.Status.CurrentMetrics = statuses
	setCondition(a, now, autoscalingv2.ScalingActive, true, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from %s", metric)
	return replicas, metric, nil
}

// evaluate evaluates one metric.
func (c *autoscaler) evaluate(ctx context.Context, v *view, m *autoscalingv2.MetricSpec) (proposal, *failure) {
	var p proposal
	var err error
	reason := ""
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		reason = "FailedGetResourceMetric"
		p, err = c.resource(ctx, v, m.Resource.Name, "", m.Resource.Target)
	case autoscalingv2.ContainerResourceMetricSourceType:
		reason = "FailedGetContainerResourceMetric"
		p, err = c.resource(ctx, v, m.ContainerResource.Name, m.ContainerResource.Container, m.ContainerResource.Target)
	case autoscalingv2.PodsMetricSourceType:
		reason = "FailedGetPodsMetric"
		p, err = c.ofPods(ctx, v, m.Pods)
	case autoscalingv2.ObjectMetricSourceType:
		reason = "FailedGetObjectMetric"
		p, err = c.ofObject(ctx, v, m.Object)
	case autoscalingv2.ExternalMetricSourceType:
		reason = "FailedGetExternalMetric"
		p, err = c.ofExternal(ctx, v, m.External)
	default:
		reason, err = "InvalidMetricSourceType", fmt.Errorf("unknown metric source type %q", m.Type)
	}
	if err != nil {
		return p, &failure{reason, err}
	}
	return p, nil
}

// resource evaluates a metric of a requested resource, such as cpu or memory.
func (c *autoscaler) resource(ctx context.Context, v *view, name corev1.ResourceName, container string, target autoscalingv2.MetricTarget) (p proposal, err error) {
	samples, err := c.source.resource(ctx, v.a.Namespace, v.selector, name, container)
	if err != nil {
		return p, fmt.Errorf("failed to get %s usage: %w", name, err)
	}
	groups := sortPods(v.pods, samples, name == corev1.ResourceCPU, c.now())
	if len(groups.measured) == 0 {
		return p, fmt.Errorf("did not receive metrics for targeted pods (pods might be unready)")
	}
	value := autoscalingv2.MetricValueStatus{AverageValue: resource.NewMilliQuantity(mean(groups.measured), resource.DecimalSI)}
	p.name = fmt.Sprintf("%s resource", name)
	if target.AverageValue != nil {
		full := target.AverageValue.MilliValue()
		p.replicas, err = replicasFor(v.scale.Spec.Replicas, groups, average(full), func(*corev1.Pod) int64 { return full }, v.tolerance)
	} else if target.AverageUtilization != nil {
		p.name += " utilization (percentage of request)"
		requests, requestErr := requestsOf(v.pods, name, container)
		if requestErr != nil {
			return p, fmt.Errorf("failed to get %s utilization: %w", name, requestErr)
		}
		percent, percentErr := percentUsed(groups.measured, requests)
		if percentErr != nil {
			return p, percentErr
		}
		value.AverageUtilization = &percent
		// An unmeasured pod counts with its full request, or with the target if that is more.
		full := func(pod *corev1.Pod) int64 {
			return requests[pod.Name] * int64(max(100, *target.AverageUtilization)) / 100
		}
		p.replicas, err = replicasFor(v.scale.Spec.Replicas, groups, utilization(requests, *target.AverageUtilization), full, v.tolerance)
	} else {
		err = fmt.Errorf("invalid resource metric source: neither an average utilization nor an average value (usage) target was set")
	}
	if container != "" {
		p.name = fmt.Sprintf("%s container resource", name)
		p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ContainerResourceMetricSourceType,
			ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: name, Container: container, Current: value}}
		return p, err
	}
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{Name: name, Current: value}}
	return p, err
}

func (c *autoscaler) ofPods(ctx context.Context, v *view, m *autoscalingv2.PodsMetricSource) (p proposal, err error) {
	samples, err := c.source.pods(ctx, v.a.Namespace, v.selector, m.Metric.Name, m.Metric.Selector)
	if err != nil {
		return p, fmt.Errorf("failed to get pods metric value: %w", err)
	}
	groups := sortPods(v.pods, samples, false, c.now())
	if len(groups.measured) == 0 {
		return p, fmt.Errorf("did not receive metrics for targeted pods (pods might be unready)")
	}
	full := m.Target.AverageValue.MilliValue()
	p.name = "pods metric " + m.Metric.Name
	p.replicas, err = replicasFor(v.scale.Spec.Replicas, groups, average(full), func(*corev1.Pod) int64 { return full }, v.tolerance)
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricStatus{
		Metric: m.Metric, Current: autoscalingv2.MetricValueStatus{AverageValue: resource.NewMilliQuantity(mean(groups.measured), resource.DecimalSI)}}}
	return p, err
}

func (c *autoscaler) ofObject(ctx context.Context, v *view, m *autoscalingv2.ObjectMetricSource) (p proposal, err error) {
	gv, err := schema.ParseGroupVersion(m.DescribedObject.APIVersion)
	if err != nil {
		return p, err
	}
	res, err := c.resourceOf(ctx, gv, m.DescribedObject.Kind)
	if err != nil {
		return p, err
	}
	value, err := c.source.object(ctx, v.a.Namespace, res.GroupResource().String(), m.DescribedObject.Name, m.Metric.Name, m.Metric.Selector)
	if err != nil {
		return p, fmt.Errorf("failed to get object metric value: %w", err)
	}
	p.name = fmt.Sprintf("%s metric %s", m.DescribedObject.Kind, m.Metric.Name)
	var current autoscalingv2.MetricValueStatus
	if p.replicas, current, err = v.shared(value, m.Target); err != nil {
		return p, err
	}
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricStatus{
		Metric: m.Metric, DescribedObject: m.DescribedObject, Current: current}}
	return p, nil
}

func (c *autoscaler) ofExternal(ctx context.Context, v *view, m *autoscalingv2.ExternalMetricSource) (p proposal, err error) {
	value, err := c.source.external(ctx, v.a.Namespace, m.Metric.Name, m.Metric.Selector)
	if err != nil {
		return p, fmt.Errorf("failed to get %s external metric value: %w", m.Metric.Name, err)
	}
	p.name = "external metric " + m.Metric.Name
	var current autoscalingv2.MetricValueStatus
	if p.replicas, current, err = v.shared(value, m.Target); err != nil {
		return p, err
	}
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricStatus{Metric: m.Metric, Current: current}}
	return p, nil
}

// shared evaluates a value that all pods share.
func (v *view) shared(value int64, target autoscalingv2.MetricTarget) (int32, autoscalingv2.MetricValueStatus, error) {
	current := v.scale.Spec.Replicas
	switch {
	case target.Value != nil:
		replicas, err := replicasForTotal(current, v.pods, value, target.Value.MilliValue(), v.tolerance)
		return replicas, autoscalingv2.MetricValueStatus{Value: resource.NewMilliQuantity(value, resource.DecimalSI)}, err
	case target.AverageValue != nil:
		each := value
		if v.scale.Status.Replicas > 0 {
			each = (value + int64(v.scale.Status.Replicas) - 1) / int64(v.scale.Status.Replicas)
		}
		return replicasForShare(v.scale.Status.Replicas, value, target.AverageValue.MilliValue(), v.tolerance),
			autoscalingv2.MetricValueStatus{AverageValue: resource.NewMilliQuantity(each, resource.DecimalSI)}, nil
	}
	return 0, autoscalingv2.MetricValueStatus{}, fmt.Errorf("invalid metric source: neither a value target nor an average value target was set")
}

package autoscale

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	custom "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	external "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/knarr-project/knarr/internal/client"
)

// source reads metrics from extension servers: usage of pods from metrics.k8s.io, all other metrics
// from custom.metrics.k8s.io and external.metrics.k8s.io.
type source struct{ client client.Interface }

// list decodes a list of an extension server into a Go type.
func (s source) list(ctx context.Context, res schema.GroupVersionResource, namespace string, selector labels.Selector, into any) error {
	opts := metav1.ListOptions{}
	if selector != nil {
		opts.LabelSelector = selector.String()
	}
	obj, err := s.client.List(ctx, res, namespace, opts)
	if err != nil {
		return err
	}
	data, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(data, into)
}

// resource returns each selected pod's usage of a resource, summed over its containers or of one
// container.
func (s source) resource(ctx context.Context, namespace string, selector labels.Selector, name corev1.ResourceName, container string) (map[string]sample, error) {
	var list metrics.PodMetricsList
	if err := s.list(ctx, metrics.SchemeGroupVersion.WithResource("pods"), namespace, selector, &list); err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	out := map[string]sample{}
	for i := range list.Items {
		m := &list.Items[i]
		sum, whole := int64(0), len(m.Containers) > 0
		found := container == ""
		for _, c := range m.Containers {
			if container != "" && c.Name != container {
				continue
			}
			used, ok := c.Usage[name]
			sum, whole, found = sum+used.MilliValue(), whole && ok, true
		}
		if whole && found {
			out[m.Name] = sample{value: sum, at: m.Timestamp.Time, window: m.Window.Duration}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no metrics returned from resource metrics API")
	}
	return out, nil
}

// errMetricSelector refuses a selector of a metric: client.Interface passes on one selector only.
var errMetricSelector = fmt.Errorf("a selector of the metric itself is not supported for metrics of pods and objects")

// pods returns a metric of each selected pod.
func (s source) pods(ctx context.Context, namespace string, selector labels.Selector, metric string, metricSelector *metav1.LabelSelector) (map[string]sample, error) {
	list, err := s.custom(ctx, "pods", "*", namespace, selector, metric, metricSelector)
	if err != nil {
		return nil, err
	}
	out := map[string]sample{}
	for _, m := range list {
		v := sample{value: m.Value.MilliValue(), at: m.Timestamp.Time}
		if m.WindowSeconds != nil {
			v.window = seconds(int32(*m.WindowSeconds))
		}
		out[m.DescribedObject.Name] = v
	}
	return out, nil
}

// object returns a metric of one object.
func (s source) object(ctx context.Context, namespace, resource, name, metric string, metricSelector *metav1.LabelSelector) (int64, error) {
	list, err := s.custom(ctx, resource, name, namespace, nil, metric, metricSelector)
	if err != nil {
		return 0, err
	}
	return list[0].Value.MilliValue(), nil
}

func (s source) custom(ctx context.Context, resource, name, namespace string, selector labels.Selector, metric string, metricSelector *metav1.LabelSelector) ([]custom.MetricValue, error) {
	if metricSelector != nil && len(metricSelector.MatchLabels)+len(metricSelector.MatchExpressions) > 0 {
		return nil, errMetricSelector
	}
	var list custom.MetricValueList
	// A metric is a subresource of its object: .../pods/NAME/METRIC.
	if err := s.list(ctx, custom.SchemeGroupVersion.WithResource(resource+"/"+name+"/"+metric), namespace, selector, &list); err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no metrics returned from custom metrics API")
	}
	return list.Items, nil
}

// external returns the sum of a metric that belongs to no object of the cluster.
func (s source) external(ctx context.Context, namespace, metric string, metricSelector *metav1.LabelSelector) (int64, error) {
	selector, err := metav1.LabelSelectorAsSelector(metricSelector)
	if err != nil {
		return 0, err
	}
	if metricSelector == nil {
		selector = labels.Everything()
	}
	var list external.ExternalMetricValueList
	if err := s.list(ctx, external.SchemeGroupVersion.WithResource(metric), namespace, selector, &list); err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return 0, fmt.Errorf("no metrics returned from external metrics API")
	}
	sum := int64(0)
	for _, m := range list.Items {
		sum += m.Value.MilliValue()
	}
	return sum, nil
}

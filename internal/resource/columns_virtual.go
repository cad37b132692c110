package resource

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// Columns of virtual kinds, which are not stored under their own name.

func componentStatusStrategy() *strategy.Strategy {
	return strategy.Show(&strategy.Strategy{}, componentStatusColumns, componentStatusRow)
}

var componentStatusColumns = columns.Define("Name", "Status=Status of the component conditions", "Message=Message of the component conditions", "Error=Error of the component conditions")

func componentStatusRow(s *corev1.ComponentStatus, _ metav1.Time) []any {
	status, message, failure := "Unknown", "", ""
	for _, c := range s.Conditions {
		if c.Type != corev1.ComponentHealthy {
			continue
		}
		status, message, failure = "Unhealthy", c.Message, c.Error
		if c.Status == corev1.ConditionTrue {
			status = "Healthy"
		}
	}
	return []any{s.Name, status, message, failure}
}

func scaleStrategy() *strategy.Strategy {
	return strategy.Show(&strategy.Strategy{}, scaleColumns, scaleRow)
}

// As upstream, the name column of a Scale does not have the format of a name.
var scaleColumns = func() []metav1.TableColumnDefinition {
	list := columns.Define("Name", "Desired:integer@spec.replicas", "Available:integer@status.replicas", "Age")
	list[0].Format = ""
	return list
}()

func scaleRow(s *autoscalingv1.Scale, now metav1.Time) []any {
	return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), columns.AgeOf(s, now)}
}

func nodeMetricsStrategy() *strategy.Strategy {
	return strategy.Show(&strategy.Strategy{}, nodeMetricsColumns, nodeMetricsRow)
}

func podMetricsStrategy() *strategy.Strategy {
	return strategy.Show(&strategy.Strategy{}, podMetricsColumns, podMetricsRow)
}

var nodeMetricsColumns = columns.Define("Name", "CPU=How much CPU was used in the window", "Memory=How much memory is used", "Window=The time in which the use of CPU was measured")

func nodeMetricsRow(m *metricsv1beta1.NodeMetrics, _ metav1.Time) []any {
	return usageRow(m.Name, m.Usage, m.Window)
}

var podMetricsColumns = nodeMetricsColumns

func podMetricsRow(m *metricsv1beta1.PodMetrics, _ metav1.Time) []any {
	sum := corev1.ResourceList{}
	for _, c := range m.Containers {
		for name, used := range c.Usage {
			total := sum[name]
			total.Add(used)
			sum[name] = total
		}
	}
	return usageRow(m.Name, sum, m.Window)
}

func usageRow(name string, used corev1.ResourceList, window metav1.Duration) []any {
	show := func(name corev1.ResourceName) string {
		q := used[name]
		return q.String()
	}
	return []any{name, show(corev1.ResourceCPU), show(corev1.ResourceMemory), window.Duration.String()}
}

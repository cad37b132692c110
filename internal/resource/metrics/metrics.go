// Package metrics holds the printer columns of metrics.k8s.io, whose objects are not stored.
package metrics

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func NodeMetricsStrategy() *strategy.Strategy {
	return strategy.Show(&strategy.Strategy{}, nodeMetricsColumns, nodeMetricsRow)
}

func PodMetricsStrategy() *strategy.Strategy {
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

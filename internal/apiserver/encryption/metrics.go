package encryption

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/storage/value"
	envelope "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// libraryMetrics collects the metrics of the libraries that transform values, under upstream's
// names. They are global: two stores in one process share them.
type libraryMetrics struct{ gatherer prometheus.Gatherer }

var families = []string{"apiserver_envelope_encryption_", "apiserver_storage_transformation_", "apiserver_storage_data_key_generation_", "apiserver_storage_envelope_transformation_"}

func newLibraryMetrics() libraryMetrics {
	value.RegisterMetrics()
	envelope.RegisterMetrics()
	return libraryMetrics{legacyregistry.DefaultGatherer}
}

// Describe implements prometheus.Collector. It sends nothing, because the set of metrics varies.
func (libraryMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It ignores errors of the shared registry: they concern
// other families.
func (c libraryMetrics) Collect(ch chan<- prometheus.Metric) {
	all, _ := c.gatherer.Gather()
	for _, family := range all {
		for _, prefix := range families {
			if strings.HasPrefix(family.GetName(), prefix) {
				collectFamily(ch, family)
			}
		}
	}
}

func collectFamily(ch chan<- prometheus.Metric, family *dto.MetricFamily) {
	_, help, found := strings.Cut(family.GetHelp(), "] ") // without the stability level
	if !found {
		help = family.GetHelp()
	}
	for _, m := range family.Metric {
		var labels []string
		for _, l := range m.Label {
			labels = append(labels, l.GetName())
		}
		ch <- gatheredMetric{m, prometheus.NewDesc(family.GetName(), help, labels, nil)}
	}
}

// gatheredMetric is a metric of another registry.
type gatheredMetric struct {
	metric *dto.Metric
	desc   *prometheus.Desc
}

// Desc implements prometheus.Metric.
func (g gatheredMetric) Desc() *prometheus.Desc { return g.desc }

// Write implements prometheus.Metric.
func (g gatheredMetric) Write(m *dto.Metric) error {
	m.Label, m.Gauge, m.Counter, m.Histogram = g.metric.Label, g.metric.Gauge, g.metric.Counter, g.metric.Histogram
	return nil
}

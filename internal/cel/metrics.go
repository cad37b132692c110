package cel

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics time the work of compilers and evaluations, under upstream's names. A nil Metrics does
// nothing.
type Metrics struct{ compilations, evaluations prometheus.Histogram }

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "apiserver_cel_" + name + "_duration_seconds", Help: help})
	}
	return &Metrics{
		compilations: seconds("compilation", "CEL compilation time in seconds."),
		evaluations:  seconds("evaluation", "CEL evaluation time in seconds."),
	}
}

// Collectors returns the collectors for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.compilations, m.evaluations}
}

func (m *Metrics) compiled(since time.Time) {
	if m != nil {
		m.compilations.Observe(time.Since(since).Seconds())
	}
}

func (m *Metrics) evaluated(since time.Time) {
	if m != nil {
		m.evaluations.Observe(time.Since(since).Seconds())
	}
}

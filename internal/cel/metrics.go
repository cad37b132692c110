package cel

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	compilations = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "apiserver_cel_compilation_duration_seconds", Help: "CEL compilation time in seconds.",
	})
	evaluations = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "apiserver_cel_evaluation_duration_seconds", Help: "CEL evaluation time in seconds.",
	})
)

// Collectors are the metrics of compiling and evaluating expressions, under upstream's names.
func Collectors() []prometheus.Collector { return []prometheus.Collector{compilations, evaluations} }

func observe(h prometheus.Histogram, since time.Time) { h.Observe(time.Since(since).Seconds()) }

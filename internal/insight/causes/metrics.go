package causes

import "github.com/prometheus/client_golang/prometheus"

// Collectors returns the log's metrics: Records by whether they were kept or dropped.
func (l *Log) Collectors() []prometheus.Collector {
	counter := func(result string, value func() int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "knarr_causal_log_records_total", Help: "Records of the causal log, by result.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(value()) })
	}
	return []prometheus.Collector{counter("kept", l.appended.Load), counter("dropped", l.dropped.Load)}
}

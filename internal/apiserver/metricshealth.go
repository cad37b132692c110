package apiserver

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// healthMetrics are the results of health checks, on a page of their own (KEP-3466).
type healthMetrics struct {
	registry *prometheus.Registry
	last     *prometheus.GaugeVec
	results  *prometheus.CounterVec
}

func newHealthMetrics() *healthMetrics {
	m := &healthMetrics{
		registry: prometheus.NewRegistry(),
		last:     newGauge("kubernetes_healthcheck", "This metric records the result of a single healthcheck.", "type", "name"),
		results:  newCounter("kubernetes_healthchecks_total", "This metric records the results of all healthcheck.", "type", "name", "status"),
	}
	m.registry.MustRegister(m.last, m.results)
	return m
}

func (m *healthMetrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// run carries out a check and notes its result.
func (m *healthMetrics) run(ctx context.Context, kind string, c *check) error {
	err := c.run(ctx)
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	m.last.WithLabelValues(kind, c.name).Set(value)
	m.results.WithLabelValues(kind, c.name, status).Inc()
	return err
}

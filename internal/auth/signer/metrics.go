package signer

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// metrics has upstream's names and labels.
type metrics struct {
	data, success  prometheus.Gauge
	fetches, signs *prometheus.CounterVec
	seconds        *prometheus.HistogramVec
}

func newMetrics() metrics {
	const name = "apiserver_externaljwt_"
	return metrics{
		data: prometheus.NewGauge(prometheus.GaugeOpts{Name: name + "fetch_keys_data_timestamp",
			Help: "Unix Timestamp in seconds of the last successful FetchKeys data_timestamp value returned by the external signer"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{Name: name + "fetch_keys_success_timestamp", Help: "Unix Timestamp in seconds of the last successful FetchKeys request"}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name + "fetch_keys_request_total", Help: "Total attempts at syncing supported JWKs"}, []string{"code"}),
		signs:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: name + "sign_request_total", Help: "Total attempts at signing JWT"}, []string{"code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name + "request_duration_seconds",
			Help: "Request duration and time for calls to external-jwt-signer", Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30}}, []string{"method", "code"}),
	}
}

// Collectors returns metrics about the requests to the signer, their duration and their results.
func (s *Signer) Collectors() []prometheus.Collector {
	m := &s.metrics
	return []prometheus.Collector{m.data, m.success, m.fetches, m.signs, m.seconds}
}

// timed is a grpc.UnaryClientInterceptor that measures requests.
func (m *metrics) timed(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	since := time.Now()
	err := call(ctx, method, req, reply, cc, opts...)
	m.seconds.WithLabelValues(method, code(err)).Observe(time.Since(since).Seconds())
	return err
}

// code returns the status code of the signer, or a code for an unusable answer.
func code(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Code().String()
	}
	return "unknown-non-grpc"
}

func (m *metrics) fetched(data, now time.Time) {
	m.data.Set(seconds(data))
	m.success.Set(seconds(now))
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

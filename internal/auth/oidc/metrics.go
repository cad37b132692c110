package oidc

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/zpages"
)

// metrics are upstream's metrics of issuers. Their labels are hashes of issuers and keys.
type metrics struct {
	took    *prometheus.HistogramVec
	fetched *prometheus.GaugeVec
	keys    *prometheus.GaugeVec
}

const (
	labelIssuer = "jwt_issuer_hash"
	labelResult = "result"
)

func newMetrics() *metrics {
	const prefix = "apiserver_authentication_jwt_authenticator_"
	server := prometheus.Labels{"apiserver_id_hash": zpages.Hashed(zpages.Identity())}
	return &metrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "latency_seconds",
			Help:    "Latency of jwt authentication operations in seconds. This is the time spent authenticating a token.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}}, []string{labelResult, labelIssuer}),
		fetched: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "jwks_fetch_last_timestamp_seconds", ConstLabels: server,
			Help: "Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt issuer for the JWT authenticator."}, []string{labelResult, labelIssuer}),
		keys: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "jwks_fetch_last_key_set_info", ConstLabels: server,
			Help: "Information about the last JWKS fetched by the JWT authenticator with hash as label, split by api server identity and jwt issuer."}, []string{"hash", labelIssuer}),
	}
}

// Collectors returns the metrics of the issuers.
func (t *Tokens) Collectors() []prometheus.Collector {
	return []prometheus.Collector{t.metrics.took, t.metrics.fetched, t.metrics.keys}
}

func result(err error) string {
	if err != nil {
		return "failure"
	}
	return "success"
}

// issuerMetrics are the metrics of one issuer. Issuers of distributed claims have none (nil), since
// tokens can name any number of them.
type issuerMetrics struct {
	*metrics
	issuer string // hashed
}

func (m *metrics) of(issuer string) *issuerMetrics {
	return &issuerMetrics{metrics: m, issuer: zpages.Hashed(issuer)}
}

// forget deletes the series of an issuer that is no longer configured.
func (m *metrics) forget(issuer string) {
	of := prometheus.Labels{labelIssuer: zpages.Hashed(issuer)}
	m.took.DeletePartialMatch(of)
	m.fetched.DeletePartialMatch(of)
	m.keys.DeletePartialMatch(of)
}

func (m *issuerMetrics) authenticated(took time.Duration, err error) {
	m.took.WithLabelValues(result(err), m.issuer).Observe(took.Seconds())
}

// fetchedKeys records a request for the issuer's keys, and its answer.
func (m *issuerMetrics) fetchedKeys(document []byte, err error, now time.Time) {
	if m == nil {
		return
	}
	m.fetched.WithLabelValues(result(err), m.issuer).Set(float64(now.UnixNano()) / float64(time.Second))
	if err == nil {
		m.keys.DeletePartialMatch(prometheus.Labels{labelIssuer: m.issuer})
		m.keys.WithLabelValues(zpages.Hashed(string(document)), m.issuer).Set(1)
	}
}

package telemetry

import (
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"
)

// WriteMetrics are of particular kinds of writes and reads.
type WriteMetrics struct {
	comparing          *prometheus.HistogramVec
	Compared           map[TimeComparison]prometheus.Observer // of comparing
	requested, honored *prometheus.CounterVec                 // requested durations of certificates
	logs               *prometheus.CounterVec
	logsUnverified     prometheus.Counter
}

// TimeComparison is the result of the comparison that keeps the times of managed fields.
type TimeComparison string

const (
	OtherManagedFields TimeComparison = "unequal_objects_fast"
	OtherFields        TimeComparison = "unequal_objects_slow"
	OnlyOtherTimes     TimeComparison = "equal_objects"
)

func newWriteMetrics() *WriteMetrics {
	const signer = "sliced by signer (only kubernetes.io signer names are specifically identified)"
	m := &WriteMetrics{
		comparing: NewHistogram("apiserver_request_timestamp_comparison_time", "Time taken for comparison of old vs new objects in UPDATE or PATCH requests",
			[]float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5}, "code_path"),
		Compared:  map[TimeComparison]prometheus.Observer{},
		requested: NewCounter("apiserver_certificates_registry_csr_requested_duration_total", "Total number of issued CSRs with a requested duration, "+signer, "signerName"),
		honored:   NewCounter("apiserver_certificates_registry_csr_honored_duration_total", "Total number of issued CSRs with a requested duration that was honored, "+signer, "signerName"),
		logs: NewCounter("kube_apiserver_pod_logs_insecure_backend_total",
			"Total number of requests for pods/logs sliced by usage type: enforce_tls, skip_tls_allowed, skip_tls_denied", "usage"),
		logsUnverified: prometheus.NewCounter(prometheus.CounterOpts{Name: "kube_apiserver_pod_logs_backend_tls_failure_total",
			Help: "Total number of requests for pods/logs that failed due to kubelet server TLS verification"}),
	}
	for _, outcome := range []TimeComparison{OtherManagedFields, OtherFields, OnlyOtherTimes} {
		m.Compared[outcome] = m.comparing.WithLabelValues(string(outcome))
	}
	return m
}

func (m *WriteMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.comparing, m.requested, m.honored, m.logs, m.logsUnverified}
}

// LogAsked counts a request for a log.
func (m *WriteMetrics) LogAsked(unverified bool) {
	usage := "enforce_tls"
	if unverified {
		usage = "skip_tls_allowed"
	}
	m.logs.WithLabelValues(usage).Inc()
}

// LogFailed counts kubelets whose certificate could not be verified.
func (m *WriteMetrics) LogFailed(err error) {
	if strings.Contains(err.Error(), "x509:") {
		m.logsUnverified.Inc()
	}
}

// Written counts a newly issued certificate whose request asked for a duration, and whether the
// duration was honored.
func (m *WriteMetrics) Written(subresource string, old, obj runtime.Object) {
	if subresource != "status" {
		return
	}
	was, ok := old.(*certificatesv1.CertificateSigningRequest)
	if !ok || len(was.Status.Certificate) > 0 || was.Spec.ExpirationSeconds == nil {
		return
	}
	is, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok || len(is.Status.Certificate) == 0 {
		return
	}
	signer := was.Spec.SignerName
	if !strings.HasPrefix(signer, "kubernetes.io/") {
		signer = "other"
	}
	m.requested.WithLabelValues(signer).Inc()
	issued, err := cert.ParseCertsPEM(is.Status.Certificate)
	if err != nil {
		slog.Warn("the validity of an issued certificate cannot be read", "request", was.Name, "err", err)
		return
	}
	if asked := time.Duration(*was.Spec.ExpirationSeconds) * time.Second; DurationHonored(asked, issued[0].NotAfter.Sub(issued[0].NotBefore)) {
		m.honored.WithLabelValues(signer).Inc()
	}
}

// DurationHonored reports whether the given duration is close to the requested one: signers may
// backdate certificates a little.
func DurationHonored(asked, given time.Duration) bool {
	return (asked - given).Abs() < 5*time.Minute+asked/20
}

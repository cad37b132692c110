package dns

import (
	"strings"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts queries and answers. The names are CoreDNS's, for existing dashboards.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	responses *prometheus.CounterVec
	duration  prometheus.Histogram
	forwards  *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		requests:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_dns_requests_total", Help: "DNS queries by protocol and type."}, []string{"proto", "type"}),
		responses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_dns_responses_total", Help: "DNS answers by code."}, []string{"rcode"}),
		duration:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "coredns_dns_request_duration_seconds", Help: "Time to an answer.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9)}),
		forwards:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "knarr_dns_forwards_total", Help: "Queries for names outside of the cluster: from the cache, answered upstream, failed."}, []string{"result"}),
	}
	m.registry.MustRegister(m.requests, m.responses, m.duration, m.forwards)
	return m
}

func (m *metrics) observe(req, reply *mdns.Msg, tcp bool, took time.Duration) {
	proto, qtype := "udp", "other"
	if tcp {
		proto = "tcp"
	}
	if len(req.Question) == 1 {
		switch t := req.Question[0].Qtype; t {
		case mdns.TypeA, mdns.TypeAAAA, mdns.TypeSRV, mdns.TypePTR, mdns.TypeCNAME, mdns.TypeTXT, mdns.TypeSOA, mdns.TypeNS, mdns.TypeMX, mdns.TypeHTTPS:
			qtype = mdns.TypeToString[t]
		}
	}
	m.requests.WithLabelValues(proto, qtype).Inc()
	m.responses.WithLabelValues(strings.ToUpper(mdns.RcodeToString[reply.Rcode])).Inc()
	m.duration.Observe(took.Seconds())
}

func (m *metrics) forwarded(hit bool, err error) {
	result := "upstream"
	switch {
	case err != nil:
		result = "failed"
	case hit:
		result = "cache"
	}
	m.forwards.WithLabelValues(result).Inc()
}

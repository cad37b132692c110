package service

import (
	"context"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/cache"
)

// allocationMetrics count the allocation of Services' addresses and node ports. The scope is
// "static" for values that the user requests, and "dynamic" for those that the server chooses.
type allocationMetrics struct {
	addresses, addressErrors *prometheus.CounterVec
	seconds                  *prometheus.HistogramVec
	ports, portErrors        *prometheus.CounterVec
}

const (
	scopeStatic  = "static"
	scopeDynamic = "dynamic"
)

const (
	addressMetrics = "kube_apiserver_clusterip_allocator_"
	portMetrics    = "kube_apiserver_nodeport_allocator_"
)

func NewAllocationMetrics() *allocationMetrics {
	return &allocationMetrics{
		addresses:     telemetry.NewCounter(addressMetrics+"allocation_total", "Number of Cluster IPs allocations", "cidr", "scope"),
		addressErrors: telemetry.NewCounter(addressMetrics+"allocation_errors_total", "Number of errors trying to allocate Cluster IPs", "cidr", "scope"),
		seconds:       telemetry.NewHistogram(addressMetrics+"allocation_duration_seconds", "Duration in seconds to allocate a Cluster IP by ServiceCIDR", prometheus.DefBuckets, "cidr"),
		ports:         telemetry.NewCounter(portMetrics+"allocation_total", "Number of NodePort allocations", "scope"),
		portErrors:    telemetry.NewCounter(portMetrics+"allocation_errors_total", "Number of errors trying to allocate NodePort", "scope"),
	}
}

func (m *allocationMetrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.addresses, m.addressErrors, m.seconds, m.ports, m.portErrors}
}

// address counts an attempt to allocate an address. Dry runs do not count.
func (m *allocationMetrics) address(t *registry.Transaction, in AddressRange, scope string, since time.Time, err error) {
	switch cidr := in.String(); {
	case t.DryRun:
	case err != nil:
		m.addressErrors.WithLabelValues(cidr, scope).Inc()
	default:
		m.addresses.WithLabelValues(cidr, scope).Inc()
		m.seconds.WithLabelValues(cidr).Observe(time.Since(since).Seconds())
	}
}

// port counts an attempt to allocate a node port.
func (m *allocationMetrics) port(t *registry.Transaction, scope string, err error) {
	switch {
	case t.DryRun:
	case err != nil:
		m.portErrors.WithLabelValues(scope).Inc()
	default:
		m.ports.WithLabelValues(scope).Inc()
	}
}

var (
	descAddressesTaken = prometheus.NewDesc(addressMetrics+"allocated_ips", "Gauge measuring the number of allocated IPs for Services", []string{"cidr"}, nil)
	descAddressesFree  = prometheus.NewDesc(addressMetrics+"available_ips", "Gauge measuring the number of available IPs for Services", []string{"cidr"}, nil)
	descPortsTaken     = prometheus.NewDesc(portMetrics+"allocated_ports", "Gauge measuring the number of allocated NodePorts for Services", nil, nil)
	descPortsFree      = prometheus.NewDesc(portMetrics+"available_ports", "Gauge measuring the number of available NodePorts for Services", nil, nil)
)

// AllocatedMetrics report how much of the ranges is taken. They read the store, so they include
// other servers' allocations.
type AllocatedMetrics struct{ Services *Allocator }

// Describe implements prometheus.Collector.
func (m AllocatedMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descAddressesTaken, descAddressesFree, descPortsTaken, descPortsFree} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m AllocatedMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), registry.CollectTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if ports, err := m.Services.loadPorts(ctx); err == nil {
		taken := ports.count()
		gauge(descPortsTaken, float64(taken))
		gauge(descPortsFree, float64(ports.ports.Size-taken))
	}
	for _, family := range m.Services.families() {
		for _, in := range m.Services.serviceRanges(ctx, family) {
			taken, err := m.Services.allocatedIn(ctx, in)
			if err != nil {
				continue // no figure is better than one that says all are free
			}
			gauge(descAddressesTaken, float64(taken), in.String())
			gauge(descAddressesFree, float64(in.usableCount()-taken), in.String())
		}
	}
}

// allocatedIn counts the allocated addresses of a range.
func (s *Allocator) allocatedIn(ctx context.Context, in AddressRange) (n uint64, err error) {
	r, taken, err := s.addresses(ctx)
	if err != nil {
		return 0, err
	}
	prefix := r.Prefix("")
	taken.Ascend(prefix, prefix, func(e *cache.Entry) bool {
		if addr, err := netip.ParseAddr(e.Name); err == nil && in.usable(addr) {
			n++
		}
		return true
	})
	return n, nil
}

// usableCount returns the number of usable addresses of a range: all but the network's own and, for
// IPv4, the last one.
func (r AddressRange) usableCount() uint64 {
	if familyOf(r.Addr()) == corev1.IPv4Protocol {
		return r.size() - 2
	}
	return r.size() - 1
}

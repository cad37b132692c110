package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// patience is the time after the lease's expiry for which a leader that fails to renew it still
// counts as healthy, as upstream.
const patience = 20 * time.Second

// Leading reports whether the process of an Election leads. The zero value does not lead.
type Leading struct {
	name    string
	lease   time.Duration
	renewed atomic.Int64 // Unix nanoseconds; 0 means not leading
}

var descLeading = prometheus.NewDesc("leader_election_master_status",
	"Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
	[]string{"name"}, nil)

// NewLeading returns the Leading for the Election of that name.
func NewLeading(name string) *Leading { return &Leading{name: name, lease: LeaseDuration} }

func (l *Leading) setRenewed(at time.Time) {
	if l != nil {
		l.renewed.Store(at.UnixNano())
	}
}

func (l *Leading) ended() {
	if l != nil {
		l.renewed.Store(0)
	}
}

// Healthy returns an error if this process still leads after its lease has expired: it should have
// exited then.
func (l *Leading) Healthy(context.Context) error {
	if at := l.renewed.Load(); at != 0 && time.Since(time.Unix(0, at)) > l.lease+patience {
		return fmt.Errorf("failed election to renew leadership on lease %s", l.name)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (l *Leading) Describe(ch chan<- *prometheus.Desc) { DescribeLeading(ch) }

// Collect implements prometheus.Collector.
func (l *Leading) Collect(ch chan<- prometheus.Metric) {
	CollectLeading(ch, l.name, l.renewed.Load() != 0)
}

// DescribeLeading sends the description of the metric that shows leaders, for collectors.
func DescribeLeading(ch chan<- *prometheus.Desc) { ch <- descLeading }

// CollectLeading sends the metric that shows whether this process leads with the lease of a name.
func CollectLeading(ch chan<- prometheus.Metric, lease string, leads bool) {
	v := 0.0
	if leads {
		v = 1
	}
	ch <- prometheus.MustNewConstMetric(descLeading, prometheus.GaugeValue, v, lease)
}

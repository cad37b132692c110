package usage

import (
	"fmt"
	"io"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"
)

// Reading is a kubelet's report at one moment.
type Reading struct {
	node       counters
	containers map[containerName]*counters
}

type containerName struct {
	pod  types.NamespacedName
	name string
}

// counters are the values of a node or container. Unknown values are zero: a container without CPU
// time does not run.
type counters struct {
	cpu     float64 // seconds that were used until at
	at      time.Time
	memory  float64 // bytes in its working set
	started time.Time
}

// Parse parses a kubelet's /metrics/resource (KEP-727).
func Parse(r io.Reader) (*Reading, error) {
	families, err := parseText(r)
	if err != nil {
		return nil, fmt.Errorf("parse resource metrics: %w", err)
	}
	out := &Reading{containers: map[containerName]*counters{}}
	each := func(family string, fn func(c *counters, m *dto.Metric)) {
		for _, m := range families[family].GetMetric() {
			fn(out.countersOf(m), m)
		}
	}
	for _, prefix := range []string{"node_", "container_"} {
		each(prefix+"cpu_usage_seconds_total", func(c *counters, m *dto.Metric) {
			c.cpu, c.at = value(m), time.UnixMilli(m.GetTimestampMs())
		})
		each(prefix+"memory_working_set_bytes", func(c *counters, m *dto.Metric) { c.memory = value(m) })
	}
	each("container_start_time_seconds", func(c *counters, m *dto.Metric) { c.started = time.UnixMilli(int64(value(m) * 1000)) })
	return out, nil
}

// parseText parses the text format. The library panics on labels without a name after a TYPE line,
// and a node may send anything.
func parseText(r io.Reader) (families map[string]*dto.MetricFamily, err error) {
	defer func() {
		if p := recover(); p != nil {
			families, err = nil, fmt.Errorf("the text cannot be parsed: %v", p)
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

// countersOf returns the counters for a metric's labels: a container's, or the node's if there are
// none.
func (r *Reading) countersOf(m *dto.Metric) *counters {
	var name containerName
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case "namespace":
			name.pod.Namespace = l.GetValue()
		case "pod":
			name.pod.Name = l.GetValue()
		case "container":
			name.name = l.GetValue()
		}
	}
	if name == (containerName{}) {
		return &r.node
	}
	c := r.containers[name]
	if c == nil {
		c = &counters{}
		r.containers[name] = c
	}
	return c
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.GetUntyped().GetValue()
}

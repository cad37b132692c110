package stats

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ServeSummary serves /stats/summary.
func (c *Collector) ServeSummary(w http.ResponseWriter, r *http.Request) {
	s, err := c.Summary(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.FormValue("only_cpu_and_memory") == "true" {
		s = slim(s)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}

func slim(s *statsapi.Summary) *statsapi.Summary {
	out := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: s.Node.NodeName, StartTime: s.Node.StartTime, CPU: s.Node.CPU, Memory: s.Node.Memory}}
	for _, p := range s.Pods {
		q := statsapi.PodStats{PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory, Containers: []statsapi.ContainerStats{}}
		for _, k := range p.Containers {
			q.Containers = append(q.Containers, statsapi.ContainerStats{Name: k.Name, StartTime: k.StartTime, CPU: k.CPU, Memory: k.Memory})
		}
		out.Pods = append(out.Pods, q)
	}
	return out
}

// page is a page of metrics in Prometheus' text format.
type page struct {
	order    []string
	families map[string]*strings.Builder
}

func (p *page) add(name, kind, help string, value float64, at int64, labels ...string) {
	if p.families == nil {
		p.families = map[string]*strings.Builder{}
	}
	b := p.families[name]
	if b == nil {
		b = &strings.Builder{}
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		p.families[name] = b
		p.order = append(p.order, name)
	}
	b.WriteString(name)
	if len(labels) > 0 {
		b.WriteByte('{')
		for i := 0; i+1 < len(labels); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(labels[i] + `="` + escape.Replace(labels[i+1]) + `"`)
		}
		b.WriteByte('}')
	}
	fmt.Fprintf(b, " %v", value)
	if at > 0 {
		fmt.Fprintf(b, " %d", at)
	}
	b.WriteByte('\n')
}

// escape escapes the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (p *page) write(w http.ResponseWriter) {
	sort.Strings(p.order)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	for _, name := range p.order {
		fmt.Fprint(w, p.families[name].String())
	}
}

const second = 1e9

// ServeResource serves /metrics/resource.
func (c *Collector) ServeResource(w http.ResponseWriter, r *http.Request) {
	p := &page{}
	s, err := c.Summary(r.Context())
	failed := 0.0
	if err != nil {
		failed = 1
		s = &statsapi.Summary{}
	}
	p.add("scrape_error", "gauge", "[ALPHA] 1 if there was an error while getting container metrics, 0 otherwise", failed, 0)
	p.add("resource_scrape_error", "gauge", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", failed, 0)
	p.resource("node", "node", s.Node.CPU, s.Node.Memory, s.Node.Swap)
	for i := range s.Pods {
		pod := &s.Pods[i]
		labels := []string{"namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name}
		p.resource("pod", "pod", pod.CPU, pod.Memory, pod.Swap, labels...)
		for j := range pod.Containers {
			k := &pod.Containers[j]
			labels := append([]string{"container", k.Name}, labels...)
			p.resource("container", "container", k.CPU, k.Memory, k.Swap, labels...)
			if !k.StartTime.IsZero() {
				p.add("container_start_time_seconds", "gauge", "[STABLE] Start time of the container since unix epoch in seconds", float64(k.StartTime.UnixNano())/second, 0, labels...)
			}
			if k.Swap != nil && k.Swap.SwapUsageBytes != nil && k.Swap.SwapAvailableBytes != nil {
				p.add("container_swap_limit_bytes", "gauge", "[ALPHA] Current amount of the container swap limit in bytes.", float64(*k.Swap.SwapUsageBytes+*k.Swap.SwapAvailableBytes), k.Swap.Time.UnixMilli(), labels...)
			}
		}
	}
	p.write(w)
}

// resource writes the usage of the node, a pod or a container.
func (p *page) resource(prefix, what string, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, swap *statsapi.SwapStats, labels ...string) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		p.add(prefix+"_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the "+what+" in core-seconds", float64(*cpu.UsageCoreNanoSeconds)/second, cpu.Time.UnixMilli(), labels...)
	}
	if memory != nil && memory.WorkingSetBytes != nil {
		p.add(prefix+"_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the "+what+" in bytes", float64(*memory.WorkingSetBytes), memory.Time.UnixMilli(), labels...)
	}
	if swap != nil && swap.SwapUsageBytes != nil {
		p.add(prefix+"_swap_usage_bytes", "gauge", "[STABLE] Current swap usage of the "+what+" in bytes. Reported only on non-windows systems", float64(*swap.SwapUsageBytes), swap.Time.UnixMilli(), labels...)
	}
}

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
			fmt.Fprintf(b, "%s=%q", labels[i], labels[i+1])
		}
		b.WriteByte('}')
	}
	fmt.Fprintf(b, " %v", value)
	if at > 0 {
		fmt.Fprintf(b, " %d", at)
	}
	b.WriteByte('\n')
}

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
	p.add("scrape_error", "gauge", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", failed, 0)
	p.add("resource_scrape_error", "gauge", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", failed, 0)
	cpu := func(name, what string, u *statsapi.CPUStats, labels ...string) {
		if u != nil && u.UsageCoreNanoSeconds != nil {
			p.add(name, "counter", "[STABLE] Cumulative cpu time consumed by the "+what+" in core-seconds", float64(*u.UsageCoreNanoSeconds)/second, u.Time.UnixMilli(), labels...)
		}
	}
	mem := func(name, what string, u *statsapi.MemoryStats, labels ...string) {
		if u != nil && u.WorkingSetBytes != nil {
			p.add(name, "gauge", "[STABLE] Current working set of the "+what+" in bytes", float64(*u.WorkingSetBytes), u.Time.UnixMilli(), labels...)
		}
	}
	cpu("node_cpu_usage_seconds_total", "node", s.Node.CPU)
	mem("node_memory_working_set_bytes", "node", s.Node.Memory)
	for i := range s.Pods {
		pod := &s.Pods[i]
		labels := []string{"namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name}
		cpu("pod_cpu_usage_seconds_total", "pod", pod.CPU, labels...)
		mem("pod_memory_working_set_bytes", "pod", pod.Memory, labels...)
		for j := range pod.Containers {
			k := &pod.Containers[j]
			labels := append([]string{"container", k.Name}, labels...)
			cpu("container_cpu_usage_seconds_total", "container", k.CPU, labels...)
			mem("container_memory_working_set_bytes", "container", k.Memory, labels...)
			p.add("container_start_time_seconds", "gauge", "[STABLE] Start time of the container since unix epoch in seconds", float64(k.StartTime.Unix()), 0, labels...)
		}
	}
	p.write(w)
}

// ServeCadvisor serves /metrics/cadvisor with those of upstream's metrics that the runtime
// provides. Missing values are left out.
func (c *Collector) ServeCadvisor(w http.ResponseWriter, r *http.Request) {
	s, err := c.Summary(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	p := &page{}
	for i := range s.Pods {
		pod := &s.Pods[i]
		cadvisor(p, pod.CPU, pod.Memory, "container", "", "namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name)
		for j := range pod.Containers {
			k := &pod.Containers[j]
			labels := []string{"container", k.Name, "namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name}
			cadvisor(p, k.CPU, k.Memory, labels...)
			if k.Rootfs != nil && k.Rootfs.UsedBytes != nil {
				p.add("container_fs_usage_bytes", "gauge", "Number of bytes that are consumed by the container on this filesystem.", float64(*k.Rootfs.UsedBytes), 0, labels...)
			}
		}
		if pod.Network == nil {
			continue
		}
		for _, n := range pod.Network.Interfaces {
			labels := []string{"interface", n.Name, "namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name}
			counter := func(name, help string, v *uint64) {
				if v != nil {
					p.add(name, "counter", help, float64(*v), 0, labels...)
				}
			}
			counter("container_network_receive_bytes_total", "Cumulative count of bytes received", n.RxBytes)
			counter("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", n.TxBytes)
			counter("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", n.RxErrors)
			counter("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting", n.TxErrors)
		}
	}
	p.write(w)
}

func cadvisor(p *page, cpu *statsapi.CPUStats, m *statsapi.MemoryStats, labels ...string) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		p.add("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", float64(*cpu.UsageCoreNanoSeconds)/second, cpu.Time.UnixMilli(), labels...)
	}
	if m == nil {
		return
	}
	gauge := func(name, help string, v *uint64) {
		if v != nil {
			p.add(name, "gauge", help, float64(*v), m.Time.UnixMilli(), labels...)
		}
	}
	gauge("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", m.UsageBytes)
	gauge("container_memory_working_set_bytes", "Current working set in bytes.", m.WorkingSetBytes)
	gauge("container_memory_rss", "Size of RSS in bytes.", m.RSSBytes)
}

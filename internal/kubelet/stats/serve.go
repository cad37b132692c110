package stats

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
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
type page struct{ families map[string]*family }

// family is the text of one metric.
type family struct{ text []byte }

func (p *page) add(name, kind, help string, value float64, at int64, labels ...string) {
	p.sample(name, kind, help, value, at, "", labels)
}

// sample adds a value. shown are labels as the page shows them; more labels follow.
func (p *page) sample(name, kind, help string, value float64, at int64, shown string, more []string) {
	if p.families == nil {
		p.families = map[string]*family{}
	}
	f := p.families[name]
	if f == nil {
		f = &family{text: []byte("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")}
		p.families[name] = f
	}
	b := append(f.text, name...)
	if shown != "" || len(more) > 0 {
		b = append(append(b, '{'), shown...)
		if shown != "" && len(more) > 0 {
			b = append(b, ',')
		}
		b = append(appendLabels(b, more), '}')
	}
	b = strconv.AppendFloat(append(b, ' '), value, 'g', -1, 64)
	if at > 0 {
		b = strconv.AppendInt(append(b, ' '), at, 10)
	}
	f.text = append(b, '\n')
}

// appendLabels appends pairs of names and values.
func appendLabels(b []byte, labels []string) []byte {
	for i := 0; i+1 < len(labels); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, labels[i]...), `="`...)
		b = append(append(b, escape.Replace(labels[i+1])...), '"')
	}
	return b
}

// escape escapes the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// write sends the page, compressed if the client accepts that.
func (p *page) write(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Vary", "Accept-Encoding")
	var out io.Writer = w
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
		packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
		defer packed.Close()
		out = packed
	}
	for _, name := range slices.Sorted(maps.Keys(p.families)) {
		if _, err := out.Write(p.families[name].text); err != nil {
			return // the client has disconnected
		}
	}
}

// acceptsGzip reads an Accept-Encoding header.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if q, found := strings.CutPrefix(strings.TrimSpace(weight), "q="); found {
			if v, err := strconv.ParseFloat(q, 64); err != nil || v == 0 {
				continue
			}
		}
		if strings.TrimSpace(coding) == "gzip" {
			return true
		}
	}
	return false
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
				p.add("container_swap_limit_bytes", "gauge", "[STABLE] Current amount of the container swap limit in bytes. Reported only on non-windows systems", float64(*k.Swap.SwapUsageBytes+*k.Swap.SwapAvailableBytes), k.Swap.Time.UnixMilli(), labels...)
			}
		}
	}
	p.write(w, r)
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

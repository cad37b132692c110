package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Plot is one picture: for each row a bar of upstream, a bar of knarr and a mark at the budget.
type Plot struct {
	Name  string // the file's name without .svg
	Title string
	Keys  []string
}

// Plots are the pictures of the documentation, in the order in which the page shows them.
var Plots = []Plot{
	{"throughput", "Throughput: longer bars are better", []string{"create", "patch", "get", "list-json", "list-proto", "watch", "watch-h2", "schedule"}},
	{"footprint", "Memory, size and idle CPU: shorter bars are better", []string{"idle-anon", "node-anon", "node-rss", "churn-rss", "idle-watch", "idle-watch-h2", "crd-memory", "size", "idle-cpu"}},
	{"latency", "Start and latency: shorter bars are better", []string{"ready", "first-pod", "pod-ready", "pod-gone", "fifty", "overload-lease", "overload-livez", "crd-served"}},
}

// Several is the picture of three servers. It is drawn from several-servers.json in the
// documentation, since a run of these parts alone is shorter.
var Several = Plot{"several-servers", "Three servers: shorter bars are better", []string{"stop3", "kill3", "controllers3", "create3-p99", "get3-p99", "watch3-p99", "member-anon"}}

// CPU ends the key of a workload's row with the servers' CPU of a pod.
const CPU = "-cpu"

// Scheduler are the pictures of the scheduler's workloads.
var Scheduler = []Plot{
	{"scheduler", "Pods scheduled in a second: longer bars are better", workloadKeys("")},
	{"scheduler-cpu", "The servers' CPU of a scheduled pod: shorter bars are better", workloadKeys(CPU)},
}

// workloadKeys are the keys of the workloads in the order of the pictures.
func workloadKeys(suffix string) []string {
	keys := []string{
		"basic", "daemons", "spread", "spread-preferred", "spread-default", "spread-taints",
		"affinity", "affinity-preferred", "anti-affinity", "anti-affinity-matching", "anti-affinity-preferred",
		"affinity-selector", "affinity-preferred-selector", "anti-affinity-selector", "anti-affinity-preferred-selector", "affinity-mixed", "affinity-gated",
		"node-affinity", "preemption", "preemption-beside", "preemption-volumes", "unschedulable", "churn", "churn-nodes", "gates", "finalizers",
		"extended-resource", "secrets", "volumes-in-tree", "volumes-migrated", "volumes-csi", "volumes-waiting", "devices-templates", "devices-claims", "node-added",
		"nodes-100", "nodes-1000", "nodes-5000", "nodes-10000", "nodes-50000",
	}
	for i := range keys {
		keys[i] += suffix
	}
	return keys
}

// Sizes in a plot, in pixels.
const (
	width     = 760
	barLeft   = 90  // where bars begin; the side's name is to the left
	barRight  = 600 // where the longest bar ends; values are to the right
	barHeight = 13
	rowHeight = 58
	header    = 62
	charWidth = 6 // average width of a character of a value
)

// style has two sets of colours: a viewer in dark mode gets the second one.
const style = `<style>
text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:16px;font-weight:600}.small{font-size:11px;fill:#59636e}
.page{fill:#ffffff;stroke:#d1d9e0}.upstream{fill:#9aa4af}.knarr{fill:#0b7285}.budget{stroke:#c2410c;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117;stroke:#3d444d}.upstream{fill:#6b7681}.knarr{fill:#3bc9db}.budget{stroke:#fb923c}}
</style>`

// SVG draws the plot. Rows differ in unit and size, so each row has its own scale: the largest of
// upstream, knarr and budget fills the width. A row without any measurement is left out.
func (p Plot) SVG(run *Run) string {
	rows := p.rows(run)
	height := header + rowHeight*len(rows) + 8
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="%s">`+"\n%s\n", width, height, html.EscapeString(p.Title), style)
	fmt.Fprintf(&b, `<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`+"\n", width-1, height-1)
	write(&b, "title", 16, 26, p.Title)
	write(&b, "small", 16, 46, fmt.Sprintf("upstream %s, knarr %s; one machine, one run, one scale per row", run.Upstream, run.Knarr))
	fmt.Fprintf(&b, `<line class="budget" x1="%d" y1="36" x2="%[1]d" y2="50"/>`+"\n", width-78)
	write(&b, "small", width-70, 46, "budget")
	for i, row := range rows {
		row.draw(&b, header+i*rowHeight)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p Plot) rows(run *Run) []Row {
	var rows []Row
	for _, key := range p.Keys {
		for _, row := range run.Rows {
			if row.Key == key && max(row.Upstream.Value, row.Knarr.Value) > 0 {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// draw writes one row of the picture with its upper edge at y.
func (r Row) draw(b *strings.Builder, y int) {
	longest := max(r.Upstream.Value, r.Knarr.Value, r.Budget)
	length := func(v float64) int { return int(math.Round(v / longest * (barRight - barLeft))) }
	mark := barLeft + length(r.Budget) // none without a budget
	write(b, "", 16, y+13, r.What)
	for i, side := range []struct {
		name   string
		figure Figure
		ratio  string
	}{{"upstream", r.Upstream, ""}, {"knarr", r.Knarr, r.Ratio()}} {
		top := y + 19 + i*(barHeight+3)
		end := barLeft + max(length(side.figure.Value), 1)
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="2"/>`+"\n", side.name, barLeft, top, end-barLeft, barHeight)
		write(b, "small", 24, top+11, side.name)
		value := quantity(side.figure.Value, r.Unit)
		if side.ratio != "" {
			value += " (" + side.ratio + ")"
		}
		begin := end + 6
		if r.Budget > 0 && mark >= end && mark < begin+len(value)*charWidth {
			begin = mark + 6 // the mark would cross the text
		}
		write(b, "small", begin, top+11, value)
	}
	if r.Budget == 0 {
		return
	}
	fmt.Fprintf(b, `<line class="budget" x1="%d" y1="%d" x2="%[1]d" y2="%[3]d"/>`+"\n", mark, y+17, y+19+2*barHeight+5)
}

func write(b *strings.Builder, class string, x, y int, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, html.EscapeString(text))
}

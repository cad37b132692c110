package main

import (
	"fmt"
	"strings"
)

// plot draws the curves of all servers, one row for each metric, as SVG. A grey line marks the end
// of the warm-up.
func plot(servers []*server, warm, minutes float64) string {
	const width, row, left, right = 760, 120, 90, 740
	colours := []string{"#0b7285", "#c2410c", "#6741d9"}
	var b strings.Builder
	height := 40 + row*len(metrics)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="Soak">`+"\n", width, height)
	b.WriteString("<style>text{font:12px system-ui,sans-serif}polyline{fill:none;stroke-width:1.5}.warm{stroke:#9aa4af;stroke-dasharray:4}</style>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	at := func(m float64) float64 { return left + (right-left)*m/max(minutes, 1e-9) }
	for i, m := range metrics {
		top, highest := 30+row*i, 1e-9
		for _, s := range servers {
			for _, p := range s.samples {
				highest = max(highest, p.values[i])
			}
		}
		fmt.Fprintf(&b, `<text x="10" y="%d">%s</text><text x="10" y="%d">%.0f %s</text>`+"\n", top+30, m.name, top+46, highest, m.unit)
		fmt.Fprintf(&b, `<line class="warm" x1="%.0f" y1="%d" x2="%[1]f" y2="%[3]d"/>`+"\n", at(warm), top, top+row-20)
		for n, s := range servers {
			var points []string
			for _, p := range s.samples {
				points = append(points, fmt.Sprintf("%.1f,%.1f", at(p.minutes), float64(top+row-20)-float64(row-20)*p.values[i]/highest))
			}
			fmt.Fprintf(&b, `<polyline stroke="%s" points="%s"/>`+"\n", colours[n%len(colours)], strings.Join(points, " "))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// table is Markdown with the trend of each metric of each server.
func table(servers []*server, warm float64) (text string, flat bool) {
	var b strings.Builder
	flat = true
	b.WriteString("| server | what | median | growth | allowed | flat |\n|---|---|---:|---:|---:|---|\n")
	for _, s := range servers {
		for _, v := range judge(s.samples, warm) {
			word := "yes"
			if !v.flat {
				word, flat = "**no**", false
			}
			fmt.Fprintf(&b, "| %s | %s | %.1f %s | %.1f | %.1f | %s |\n", s.name, v.metric.name, v.median, v.metric.unit, v.growth, v.metric.share*v.median+v.metric.amount, word)
		}
	}
	return b.String(), flat
}

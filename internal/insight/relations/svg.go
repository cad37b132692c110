package relations

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Sizes of a drawing, in pixels.
const (
	boxWidth, boxHeight = 190, 44
	gapX, gapY          = 90, 18
	margin              = 20
	letters             = 26 // that fit into a box
)

// place is a component's box in a drawing.
type place struct{ layer, row int }

// places puts each component to the right of all that depend on it. Components of a circle share a
// layer.
func (g *Graph) places() map[ID]place {
	set := map[ID]ID{} // the first component of its circle
	for _, circle := range g.Cycles() {
		for _, id := range circle {
			set[id] = circle[0]
		}
	}
	of := func(id ID) ID {
		if first, ok := set[id]; ok {
			return first
		}
		return id
	}
	layer := map[ID]int{}
	for range g.Components { // each round settles at least one layer
		moved := false
		for _, r := range g.Relations {
			from, to := of(r.From), of(r.To)
			if from != to && layer[to] < layer[from]+1 {
				layer[to], moved = layer[from]+1, true
			}
		}
		if !moved {
			break
		}
	}
	order := make([]*Component, 0, len(g.Components))
	for i := range g.Components {
		order = append(order, &g.Components[i])
	}
	slices.SortStableFunc(order, func(a, b *Component) int { return cmp.Or(cmp.Compare(a.System, b.System), compareID(a.ID, b.ID)) })
	rows, out := map[int]int{}, map[ID]place{}
	for _, c := range order {
		l := layer[of(c.ID)]
		out[c.ID] = place{l, rows[l]}
		rows[l]++
	}
	return out
}

// SVG draws the graph from left to right: a component depends on those to its right.
func (g *Graph) SVG(to io.Writer) error {
	places := g.places()
	layers, rows := 0, 0
	for _, p := range places {
		layers, rows = max(layers, p.layer+1), max(rows, p.row+1)
	}
	width := 2*margin + layers*boxWidth + max(0, layers-1)*gapX
	height := 2*margin + rows*(boxHeight+gapY)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height, width, height)
	b.WriteString("<style>.b{fill:#f4f7fb;stroke:#4a6fa5}.d{fill:#fdf6e7;stroke:#b7862c}.o{fill:#eee;stroke:#777}.r{fill:none;stroke:#888}.t{fill:#222}.s{fill:#666;font-size:10px}" +
		"@media(prefers-color-scheme:dark){.b{fill:#1d2733}.d{fill:#332a16}.o{fill:#333}.t{fill:#eee}.s{fill:#aaa}}</style>\n")
	b.WriteString(`<defs><marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>` + "\n")
	for _, r := range g.Relations {
		arrow(&b, places[r.From], places[r.To], fmt.Sprintf("%s depends on %s: %s", r.From, r.To, strings.Join(r.Evidence, "; ")))
	}
	for i := range g.Components {
		box(&b, places[g.Components[i].ID], &g.Components[i])
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(to, b.String())
	return err
}

func (p place) corner() (x, y int) {
	return margin + p.layer*(boxWidth+gapX), margin + p.row*(boxHeight+gapY)
}

func arrow(b *strings.Builder, from, to place, title string) {
	x1, y1 := from.corner()
	x2, y2 := to.corner()
	x1, y1, y2 = x1+boxWidth, y1+boxHeight/2, y2+boxHeight/2
	bend := gapX / 2
	if to.layer <= from.layer { // a circle
		x2, bend = x2+boxWidth, gapX/3
		fmt.Fprintf(b, `<path class="r" marker-end="url(#a)" d="M%d %dC%d %d %d %d %d %d"><title>%s</title></path>`+"\n", x1, y1, x1+bend, y1, x2+bend, y2, x2, y2, escape(title))
		return
	}
	fmt.Fprintf(b, `<path class="r" marker-end="url(#a)" d="M%d %dC%d %d %d %d %d %d"><title>%s</title></path>`+"\n", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2, escape(title))
}

func box(b *strings.Builder, p place, c *Component) {
	x, y := p.corner()
	class, second := "b", c.ID.Namespace
	switch {
	case c.ID == Outside:
		class = "o"
	case len(c.Data) > 0:
		class = "d"
	}
	if c.Replicas > 0 {
		second += fmt.Sprintf(" · %d of %d ready", c.Ready, c.Replicas)
	}
	fmt.Fprintf(b, `<g><title>%s</title><rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"/>`, escape(describe(c)), class, x, y, boxWidth, boxHeight)
	fmt.Fprintf(b, `<text class="t" x="%d" y="%d">%s</text><text class="s" x="%d" y="%d">%s</text></g>`+"\n", x+10, y+19, escape(shorten(c.ID.Name)), x+10, y+34, escape(shorten(second)))
}

func shorten(s string) string {
	if len(s) <= letters {
		return s
	}
	return s[:letters-1] + "…"
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}

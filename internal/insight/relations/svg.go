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
	gapX, gapY          = 120, 18
	margin              = 28
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

// look is how a relation is drawn.
type look int

const (
	plain    look = iota // nothing contradicts it
	unseen               // declared, and never seen
	contrary             // seen or derived, but not declared
	denied               // a policy has denied connections
)

// looks are the classes of lines, with what the legend says of each.
var looks = [...]struct{ class, legend string }{
	plain:    {"r", "as declared, or derived where nothing is declared"},
	unseen:   {"u", "declared, never seen"},
	contrary: {"n", "not declared"},
	denied:   {"x", "denied by a policy"},
}

func style(r *Relation) look {
	has := func(d ...Difference) bool {
		return slices.ContainsFunc(d, func(d Difference) bool { return slices.Contains(r.Differences, d) })
	}
	switch {
	case has(WasDenied):
		return denied
	case has(NotDeclared, Undeclared, Missing):
		return contrary
	case has(NeverSeen):
		return unseen
	}
	return plain
}

// css has the colours. Lines differ by dashes too, and arrows have words, so that colours are not
// needed to tell them apart.
const css = `<style>.b{fill:#f4f7fb;stroke:#4a6fa5}.d{fill:#fdf6e7;stroke:#b7862c}.o{fill:#eee;stroke:#777}.t{fill:#222}.s{fill:#595959;font-size:10px}` +
	`.r,.u,.n,.x{fill:none;stroke:#767676}.u{stroke-dasharray:2 4}.n{stroke:#b45309;stroke-width:2;stroke-dasharray:8 3}.x{stroke:#b91c1c;stroke-width:2;stroke-dasharray:3 3}` +
	`.nt{fill:#9a4607;font-size:10px}.xt{fill:#b91c1c;font-size:10px}.ut{fill:#595959;font-size:10px}` +
	`@media(prefers-color-scheme:dark){.b{fill:#1d2733}.d{fill:#332a16}.o{fill:#333}.t{fill:#eee}.s,.ut{fill:#aaa}.r,.u{stroke:#999}.n{stroke:#f0a860}.nt{fill:#f0a860}.x{stroke:#f58a8a}.xt{fill:#f58a8a}}</style>` + "\n"

// SVG draws the graph from left to right: a component depends on those to its right. All that
// colours and dashes say is also text.
func (g *Graph) SVG(to io.Writer) error {
	places := g.places()
	layers, rows := 0, 0
	for _, p := range places {
		layers, rows = max(layers, p.layer+1), max(rows, p.row+1)
	}
	width := 2*margin + layers*boxWidth + max(0, layers-1)*gapX
	bottom := 2*margin + rows*(boxHeight+gapY)
	height := bottom
	if g.hasSources() {
		height += len(looks)*legendRow + margin/2
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" role="img" aria-labelledby="map-title map-desc">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"map-title\">Map of components</title><desc id=\"map-desc\">%s</desc>\n", escape(g.sentences()))
	b.WriteString(css)
	b.WriteString(`<defs><marker id="a" markerUnits="userSpaceOnUse" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>` + "\n")
	for i := range g.Relations {
		r := &g.Relations[i]
		title := fmt.Sprintf("%s depends on %s: %s", r.From, r.To, strings.Join(r.Evidence, "; "))
		if known := g.known(r); known != "" {
			title += " " + known
		}
		arrow(&b, places[r.From], places[r.To], style(r), r.difference(), title)
	}
	for i := range g.Components {
		box(&b, places[g.Components[i].ID], &g.Components[i])
	}
	if g.hasSources() {
		legend(&b, bottom)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// sentences says in words what is drawn.
func (g *Graph) sentences() string {
	var all []string
	for i := range g.Relations {
		r := &g.Relations[i]
		text := fmt.Sprintf("%s depends on %s", r.From, r.To)
		if d := r.difference(); d != "" {
			text += " (" + d + ")"
		}
		all = append(all, text+".")
	}
	return strings.Join(all, " ")
}

// legendRow is the height of one line of the legend.
const legendRow = 18

func legend(b *strings.Builder, top int) {
	for i, l := range looks {
		y := top + i*legendRow
		fmt.Fprintf(b, `<path class="%s" d="M%d %dH%d"/><text class="t" font-size="11" x="%d" y="%d">%s</text>`+"\n", l.class, margin, y, margin+40, margin+50, y+4, escape(l.legend))
	}
}

func (p place) corner() (x, y int) {
	return margin + p.layer*(boxWidth+gapX), margin + p.row*(boxHeight+gapY)
}

func arrow(b *strings.Builder, from, to place, l look, label, title string) {
	x1, y1 := from.corner()
	x2, y2 := to.corner()
	x1, y1, y2 = x1+boxWidth, y1+boxHeight/2, y2+boxHeight/2
	bend := gapX / 2
	first, second := x1+bend, x2-bend
	switch span := to.layer - from.layer; {
	case span <= 0: // a circle
		x2, bend = x2+boxWidth, gapX/3
		first, second = x1+bend, x2+bend
	case span > 1 && from.row == to.row: // around the boxes between
		y := y1 - boxHeight/2 - gapY + 4
		fmt.Fprintf(b, `<path class="%s" marker-end="url(#a)" d="M%d %dC%d %d %d %d %d %dH%dC%d %d %d %d %d %d"><title>%s</title></path>`+"\n",
			looks[l].class, x1, y1, x1+20, y1, x1+20, y, x1+40, y, x2-40, x2-20, y, x2-20, y2, x2, y2, escape(title))
		words(b, (x1+x2)/2, y-3, l, label)
		return
	}
	fmt.Fprintf(b, `<path class="%s" marker-end="url(#a)" d="M%d %dC%d %d %d %d %d %d"><title>%s</title></path>`+"\n", looks[l].class, x1, y1, first, y1, second, y2, x2, y2, escape(title))
	words(b, (x1+x2)/2, (y1+y2)/2-5, l, label)
}

// words writes the difference beside an arrow.
func words(b *strings.Builder, x, y int, l look, label string) {
	if label != "" {
		fmt.Fprintf(b, `<text class="%st" text-anchor="middle" x="%d" y="%d">%s</text>`+"\n", looks[l].class, x, y, escape(label))
	}
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

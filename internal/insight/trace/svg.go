package trace

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Sizes of the picture, in pixels.
const (
	svgRow, svgLeft, svgBars, svgRight = 20, 470, 420, 70
	svgTop                             = 44
	svgTextRunes                       = 64
)

// SVG draws the tree as a waterfall: a row for each hop, with a bar from its cause to its end. The
// picture follows the colours of a dark page.
func (t *Tree) SVG(out io.Writer) error {
	rows := 0
	t.walk(func(int, *Hop) { rows++ })
	width, height := svgLeft+svgBars+svgRight, svgTop+svgRow*rows+10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="ui-sans-serif, sans-serif" font-size="12">`+"\n", width, height, width, height)
	b.WriteString(`<style>
.page{fill:#fff}.text{fill:#1f2328}.dim{fill:#59636e}.line{stroke:#d1d9e0}
.log{fill:#0969da}.node{fill:#1a7f37}.guess{fill:#9a6700}
@media (prefers-color-scheme: dark){.page{fill:#0d1117}.text{fill:#f0f6fc}.dim{fill:#9198a1}.line{stroke:#3d444d}
.log{fill:#4493f8}.node{fill:#3fb950}.guess{fill:#d29922}}
</style>
`)
	fmt.Fprintf(&b, `<title>%s</title><rect class="page" width="100%%" height="100%%"/>`+"\n", escaped(t.title()))
	fmt.Fprintf(&b, `<text class="text" x="8" y="18" font-weight="600">%s</text>`+"\n", escaped(t.title()))
	for i := range 5 { // a line for each quarter
		x := svgLeft + svgBars*i/4
		fmt.Fprintf(&b, `<line class="line" x1="%d" y1="34" x2="%d" y2="%d"/><text class="dim" x="%d" y="30" font-size="10">%s</text>`+"\n",
			x, x, height-6, x, escaped(short(t.Took*time.Duration(i)/4)))
	}
	row := 0
	t.walk(func(depth int, h *Hop) {
		y := svgTop + svgRow*row
		row++
		text := []rune(cut(h.text(), svgTextRunes-2*depth))
		fmt.Fprintf(&b, `<text class="text" x="%d" y="%d">%s</text>`+"\n", 8+14*depth, y+13, escaped(string(text)))
		from, to := t.pixel(h.Begin), t.pixel(h.At)
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%d" height="12" rx="2"><title>%s</title></rect>`, h.class(), from, y+3, max(2, to-from), escaped(h.text()+"\n"+h.Note))
		end := to
		if !h.Last.IsZero() {
			end = t.pixel(h.Last)
			fmt.Fprintf(&b, `<rect class="%s" opacity="0.3" x="%d" y="%d" width="%d" height="12" rx="2"/>`, h.class(), to, y+3, max(0, end-to))
		}
		fmt.Fprintf(&b, `<text class="dim" x="%d" y="%d" font-size="10">%s</text>`+"\n", max(end, from+2)+5, y+13, escaped(short(h.Took())))
	})
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// class is the colour of a hop: a write, a guess, or a step of a node.
func (h *Hop) class() string {
	switch {
	case h.Source != FromLog:
		return "node"
	case h.Inferred:
		return "guess"
	}
	return "log"
}

func (t *Tree) title() string {
	if len(t.Hops) == 0 {
		return "The causal log has nothing of this change."
	}
	h := t.Hops[0]
	return cut(fmt.Sprintf("%s/%s %s by %s, %s in %s", singular(h.Resource), h.Name, h.What, h.Maker, plural(t.Writes, "write"), short(t.Took)), 130)
}

// pixel is the place of a moment on the bars.
func (t *Tree) pixel(at time.Time) int {
	if t.Took <= 0 {
		return svgLeft
	}
	share := float64(at.Sub(t.Began)) / float64(t.Took)
	return svgLeft + int(svgBars*min(1, max(0, share)))
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder does not fail
	return b.String()
}

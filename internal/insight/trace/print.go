package trace

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	width     = 100
	barWidth  = 12
	timeWidth = 7
	// The columns before the tree: START, TOOK, the bar.
	treeAt = 2*timeWidth + barWidth + 1
)

// Print writes the tree as text of at most 100 columns: when each hop happened, how long it took
// after its cause, a bar of both, what happened, and its maker.
func (t *Tree) Print(out io.Writer) error {
	var b strings.Builder
	if len(t.Hops) == 0 {
		b.WriteString("The causal log has nothing of this change.\n")
	} else {
		t.head(&b)
		fmt.Fprintf(&b, "%-*s%-*s%-*s%s\n", timeWidth, "START", timeWidth, "TOOK", barWidth+1, "TIME", "WHAT · MAKER #REVISION←CAUSE")
		t.print(&b, t.Hops, "", true)
	}
	if t.Hidden > 0 {
		fmt.Fprintf(&b, "\n%s of objects that you may not get are not shown.\n", plural(t.Hidden, "write"))
	}
	if t.Truncated {
		b.WriteString("\nThere are more writes than an answer has.\n")
	}
	for _, server := range slices.Sorted(maps.Keys(t.Missing)) {
		fmt.Fprintf(&b, "\nWrites through %s are missing: %s\n", server, t.Missing[server])
	}
	for _, node := range slices.Sorted(maps.Keys(t.Silent)) {
		b.WriteString(cut(fmt.Sprintf("Node %s does not tell its steps, so they come from events and conditions: %s", node, t.Silent[node]), 300) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (t *Tree) print(b *strings.Builder, list []*Hop, indent string, top bool) {
	for i, h := range list {
		branch, below := "├─ ", "│  "
		if i == len(list)-1 {
			branch, below = "└─ ", "   "
		}
		if top {
			branch, below = "", ""
		}
		fmt.Fprintf(b, "%-*s%-*s%s ", timeWidth, short(h.At.Sub(t.Began)), timeWidth, short(h.Took()), t.bar(h))
		b.WriteString(cut(indent+branch+h.text(), width-treeAt) + "\n")
		if h.Note != "" {
			b.WriteString(strings.Repeat(" ", treeAt) + cut(indent+below+"   "+h.Note, width-treeAt) + "\n")
		}
		t.print(b, h.Hops, indent+below, false)
	}
}

// head says which change it is, and how long all took.
func (t *Tree) head(b *strings.Builder) {
	for _, h := range t.Hops {
		fmt.Fprintf(b, "%s %s by %s\n", singular(h.Resource)+"/"+h.Name, h.What, h.Maker)
		if h.Request != "" {
			fmt.Fprintf(b, "request %s\n", h.Request)
		}
	}
	fmt.Fprintf(b, "at %s, %s in %s\n\n", t.Began.Local().Format("2006-01-02 15:04:05.000"), plural(t.Writes, "write"), short(t.Took))
}

// nicknames are kubectl's short names of long kinds.
var nicknames = map[string]string{
	"deployments": "deploy", "replicasets": "rs", "statefulsets": "sts", "daemonsets": "ds",
	"persistentvolumeclaims": "pvc", "persistentvolumes": "pv", "horizontalpodautoscalers": "hpa", "poddisruptionbudgets": "pdb",
}

func nickname(resource string) string {
	if short, ok := nicknames[resource]; ok {
		return short
	}
	return singular(resource)
}

// text is what the tree says of a hop.
func (h *Hop) text() string {
	text := h.What
	if h.Times > 1 {
		text += " ×" + strconv.Itoa(h.Times)
	}
	if h.Revision != 0 && (h.What != whatStatus) && !strings.HasPrefix(h.What, "bound") {
		text = nickname(h.Resource) + "/" + h.Name + " " + text
	}
	maker, _, _ := strings.Cut(h.Maker, " (") // the head shows the field manager
	text += " · " + maker
	if h.Revision != 0 {
		text += " #" + strconv.FormatInt(h.Revision, 10)
	}
	if len(h.Because) > 0 {
		sign := "←"
		if h.Inferred {
			sign = "←?" // a guess
		}
		text += sign + strconv.FormatInt(h.Because[len(h.Because)-1], 10)
		if n := len(h.Because); n > 1 {
			text += "+" + strconv.Itoa(n-1)
		}
	}
	return text
}

// bar shows the time from the cause to the hop within the whole story.
func (t *Tree) bar(h *Hop) string {
	at := func(moment time.Time) int {
		if t.Took <= 0 {
			return 0
		}
		return min(barWidth-1, max(0, int(float64(moment.Sub(t.Began))/float64(t.Took)*barWidth)))
	}
	from, to := at(h.Begin), at(h.At)
	last := to
	if !h.Last.IsZero() {
		last = at(h.Last)
	}
	return strings.Repeat("·", from) + strings.Repeat("█", to-from+1) + strings.Repeat("▒", last-to) + strings.Repeat("·", barWidth-1-last)
}

// singular is the short way to name an object's kind: its resource without the plural's s.
func singular(resource string) string {
	switch {
	case resource == "endpoints":
		return resource
	case strings.HasSuffix(resource, "ies"):
		return strings.TrimSuffix(resource, "ies") + "y"
	case strings.HasSuffix(resource, "sses"):
		return strings.TrimSuffix(resource, "es")
	}
	return strings.TrimSuffix(resource, "s")
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}

// short is a duration with three digits at most.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + "s"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}

// cut shortens a text to columns. Control characters, which messages of events may have, become
// spaces.
func cut(text string, columns int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) <= columns {
		return text
	}
	runes := []rune(text)
	return string(runes[:columns-1]) + "…"
}

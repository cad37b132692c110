package timeline

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	width = 100
	// maxLines bounds the fields of an item in the text; JSON has more.
	maxLines = 8
	// timeWidth is the width of the column with the time.
	timeWidth = 10
)

// Style says how answers are written.
type Style struct {
	// Zone is the time zone; nil is the local one.
	Zone *time.Location
	// Namespaces shows the namespaces of objects.
	Namespaces bool
	// Colors marks lines of differences for a terminal.
	Colors bool
}

func (s *Style) local(t time.Time) time.Time {
	if s.Zone != nil {
		return t.In(s.Zone)
	}
	return t.Local()
}

// Print writes the items of an answer in the order of time, with a line for each field.
func (a *Answer) Print(out io.Writer, style Style) error {
	var b strings.Builder
	day, gaps := "", a.Gaps
	for i := len(a.Items) - 1; i >= 0; i-- {
		item := &a.Items[i]
		at := style.local(item.Time)
		for len(gaps) > 0 && !gaps[len(gaps)-1].From.After(item.Time) {
			style.gap(&b, gaps[len(gaps)-1])
			gaps = gaps[:len(gaps)-1]
		}
		if date := at.Format("2006-01-02"); date != day {
			day = date
			b.WriteString(date + "\n")
		}
		fmt.Fprintf(&b, "%-*s%s\n", timeWidth, at.Format("15:04:05"), clip(item.headline(style.Namespaces), width-timeWidth))
		item.lines(&b)
	}
	for i := len(gaps) - 1; i >= 0; i-- {
		style.gap(&b, gaps[i])
	}
	if len(a.Items) == 0 {
		b.WriteString("Nothing has changed")
		if !a.Reaches.IsZero() {
			fmt.Fprintf(&b, ", as far as the history reaches: it begins at %s", style.local(a.Reaches).Format("2006-01-02 15:04:05"))
		}
		b.WriteString(".\n")
	}
	if a.Continue != "" {
		b.WriteString("\nThere are older changes: --limit shows more.\n")
	}
	if a.Hidden > 0 {
		fmt.Fprintf(&b, "\n%d changes of objects that you may not get are not shown.\n", a.Hidden)
	}
	for _, server := range slices.Sorted(maps.Keys(a.Missing)) {
		fmt.Fprintf(&b, "\nUsers of changes through %s are missing: %s\n", server, a.Missing[server])
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (s *Style) gap(b *strings.Builder, g Gap) {
	const form = "2006-01-02 15:04:05"
	fmt.Fprintf(b, "          changes from %s to %s are missing\n", s.local(g.From).Format(form), s.local(g.To).Format(form))
}

// headline says what happened and who did it.
func (i *Item) headline(namespaces bool) string {
	if e := i.Event; e != nil {
		text := fmt.Sprintf("event %s of %s: %s", e.Reason, object(strings.ToLower(e.Regarding.Kind), e.Regarding.Namespace, e.Regarding.Name, namespaces), oneLine(e.Message))
		if e.Type == "Warning" {
			text = "warning" + text[len("event"):]
		}
		if e.Count > 1 {
			text += fmt.Sprintf(" (×%d)", e.Count)
		}
		return text
	}
	kind := strings.ToLower(i.Kind)
	if kind == "" {
		kind = i.Resource
	}
	text := object(kind, i.Namespace, i.Name, namespaces) + " " + i.Effect
	switch {
	case strings.HasPrefix(i.Actor, "system:"):
		text += " by " + component(i.Actor)
	case i.Actor != "" && i.Manager != "":
		text += " by " + i.Actor + " (" + i.Manager + ")"
	case i.Actor != "":
		text += " by " + i.Actor
	case i.Manager != "":
		text += " by manager " + i.Manager
	}
	return oneLine(text)
}

// component returns the short name of a component's user.
func component(user string) string {
	for _, prefix := range []string{"system:serviceaccount:kube-system:", "system:"} {
		if name, ok := strings.CutPrefix(user, prefix); ok {
			return name
		}
	}
	return user
}

func object(kind, namespace, name string, namespaces bool) string {
	if namespaces && namespace != "" {
		return kind + "/" + name + " in " + namespace
	}
	return kind + "/" + name
}

// lines writes the fields that differ.
func (i *Item) lines(b *strings.Builder) {
	indent := strings.Repeat(" ", timeWidth+2)
	write := func(text string) { b.WriteString(indent + clip(text, width-len(indent)) + "\n") }
	if i.Unknown != "" {
		write("its fields are not known: " + i.Unknown)
	}
	shown := i.Changes[:min(len(i.Changes), maxLines)]
	for n := range shown {
		write(shown[n].text())
	}
	if more := len(i.Changes) - len(shown) + i.More; more > 0 {
		noun := "fields"
		if more == 1 {
			noun = "field"
		}
		write(fmt.Sprintf("and %d more %s", more, noun))
	}
}

func (c *Change) text() string {
	switch {
	case c.Hidden:
		return c.Path + " has another value, which is not recorded"
	case c.From == nil:
		return c.Path + ": + " + value(c.To)
	case c.To == nil:
		return c.Path + ": - " + value(c.From)
	}
	return c.Path + ": " + value(c.From) + " → " + value(c.To)
}

func value(v any) string {
	if text, ok := v.(string); ok && text != "" && !strings.ContainsAny(text, " \n\t\"") {
		return oneLine(text)
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return oneLine(string(doc))
}

// oneLine removes what would move the cursor of a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func clip(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

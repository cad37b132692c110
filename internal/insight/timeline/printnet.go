package timeline

import (
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"
)

// Colors of a terminal.
const (
	red, green, cyan, bold, plain = "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m"
)

// Print writes the differences as YAML: removed lines begin with -, added ones with +.
func (a *NetAnswer) Print(out io.Writer, style Style) error {
	var b strings.Builder
	const form = "2006-01-02 15:04:05"
	for _, g := range a.Gaps {
		style.gap(&b, g)
	}
	for i := range a.Items {
		if i > 0 {
			b.WriteString("\n")
		}
		if err := a.Items[i].print(&b, style); err != nil {
			return err
		}
	}
	if len(a.Items) == 0 {
		fmt.Fprintf(&b, "Nothing differs between %s and %s.\n", style.local(a.From).Format(form), style.local(a.To).Format(form))
	}
	if a.Truncated {
		b.WriteString("\nThere are more differences than an answer has: name a kind, an object or a namespace.\n")
	}
	if a.Hidden > 0 {
		fmt.Fprintf(&b, "\n%d changes of objects that you may not get are not shown.\n", a.Hidden)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (d *Difference) print(b *strings.Builder, style Style) error {
	kind := strings.ToLower(d.Kind)
	if kind == "" {
		kind = d.Resource
	}
	style.line(b, bold, oneLine(object(kind, d.Namespace, d.Name, style.Namespaces)+" "+d.Effect))
	if d.Unknown != "" {
		style.line(b, "", "  its fields are not known: "+d.Unknown)
	}
	before, err := document(d.Before)
	if err != nil {
		return err
	}
	after, err := document(d.After)
	if err != nil {
		return err
	}
	matcher := difflib.NewMatcher(before, after)
	for _, group := range matcher.GetGroupedOpCodes(3) {
		first, last := group[0], group[len(group)-1]
		style.line(b, cyan, fmt.Sprintf("@@ -%d,%d +%d,%d @@", first.I1+1, last.I2-first.I1, first.J1+1, last.J2-first.J1))
		for _, op := range group {
			if op.Tag == 'e' {
				style.all(b, "", "  ", before[op.I1:op.I2])
				continue
			}
			style.all(b, red, "- ", before[op.I1:op.I2])
			style.all(b, green, "+ ", after[op.J1:op.J2])
		}
	}
	for _, path := range d.Hidden {
		style.line(b, "", "  "+oneLine(path)+" has another value, which is not recorded")
	}
	return nil
}

// document returns the lines of an object's YAML.
func document(doc map[string]any) ([]string, error) {
	if doc == nil {
		return nil, nil
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

func (s *Style) all(b *strings.Builder, color, mark string, lines []string) {
	for _, line := range lines {
		s.line(b, color, mark+oneLine(line))
	}
}

func (s *Style) line(b *strings.Builder, color, text string) {
	if s.Colors && color != "" {
		text = color + text + plain
	}
	b.WriteString(text + "\n")
}

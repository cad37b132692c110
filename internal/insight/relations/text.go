package relations

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxAddresses bounds the addresses of a relation in the text; JSON has more.
const maxAddresses = 3

// matches compares a claim's name with a name or a template that ends with a star.
func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

func share(n, all int) string { return fmt.Sprintf("%d of %d pods", n, all) }

// systems returns the components by system, both sorted. The outside has no system.
func (g *Graph) systems() (names []string, by map[string][]*Component) {
	by = map[string][]*Component{}
	for i := range g.Components {
		c := &g.Components[i]
		if c.ID != Outside {
			by[c.System] = append(by[c.System], c)
		}
	}
	for name := range by {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, by
}

// out returns the relations of a component.
func (g *Graph) out(from ID) (all []Relation) {
	for _, r := range g.Relations {
		if r.From == from {
			all = append(all, r)
		}
	}
	return all
}

// Text writes the graph as a list: systems, their components, and below each its relations.
// evidence adds the fields that relations were derived from, and the connections.
func (g *Graph) Text(to io.Writer, evidence bool) error {
	var b strings.Builder
	if entries := g.out(Outside); len(entries) > 0 {
		b.WriteString("outside\n")
		g.relations(&b, entries, evidence)
	}
	names, by := g.systems()
	for _, name := range names {
		fmt.Fprintf(&b, "system %s\n", name)
		for _, c := range by[name] {
			fmt.Fprintf(&b, "  %s\n", describe(c))
			g.relations(&b, g.out(c.ID), evidence)
		}
	}
	if len(names) == 0 {
		b.WriteString("no components\n")
	}
	if line := g.summary(); line != "" {
		fmt.Fprintln(&b, line)
	}
	if line := g.goneText(); line != "" {
		fmt.Fprintln(&b, line)
	}
	for _, u := range g.Unread {
		fmt.Fprintf(&b, "not read, so relations may be missing: %s\n", u)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func (g *Graph) relations(b *strings.Builder, all []Relation, evidence bool) {
	for _, r := range all {
		fmt.Fprintf(b, "    → %s", r.To)
		if r.Through != "" {
			fmt.Fprintf(b, "  by %s", r.Through)
		}
		if n := len(r.Addresses); n > 0 {
			fmt.Fprintf(b, "  at %s", strings.Join(r.Addresses[:min(n, maxAddresses)], ", "))
			if n > maxAddresses {
				b.WriteString(", …")
			}
		}
		if known := g.known(&r); known != "" {
			fmt.Fprintf(b, "  %s", known)
		}
		b.WriteString("\n")
		if evidence {
			for _, e := range r.Evidence {
				fmt.Fprintf(b, "        %s\n", e)
			}
		}
	}
}

// hasSources reports whether there is more to tell of relations than what they were derived from.
func (g *Graph) hasSources() bool {
	return g.Declared || slices.ContainsFunc(g.Relations, func(r Relation) bool { return !slices.Equal(r.Sources, []Source{Derived}) })
}

// known lists a relation's sources and differences, such as "[derived, seen 12] ! seen, not
// declared". It is "" if all of the graph is derived.
func (g *Graph) known(r *Relation) string {
	if !g.hasSources() {
		return ""
	}
	var sources []string
	for _, s := range r.Sources {
		text := string(s)
		switch {
		case s == Seen && r.Seen != nil:
			text += fmt.Sprintf(" %d", r.Seen.Allowed)
		case s == Denied && r.Seen != nil:
			text += fmt.Sprintf(" %d", r.Seen.Denied)
		}
		sources = append(sources, text)
	}
	text := "[" + strings.Join(sources, ", ") + "]"
	if r.Optional {
		text += " optional"
	}
	if len(r.Differences) > 0 {
		text += "  ! " + r.difference()
	}
	return text
}

// difference joins a relation's differences.
func (r *Relation) difference() string {
	var all []string
	for _, d := range r.Differences {
		all = append(all, string(d))
	}
	return strings.Join(all, "; ")
}

// summary counts the differences, and says if traffic is not counted; "" if nothing is declared.
func (g *Graph) summary() string {
	if !g.Declared {
		return ""
	}
	count := map[Difference]int{}
	for _, r := range g.Relations {
		for _, d := range r.Differences {
			count[d]++
		}
	}
	var parts []string
	for _, d := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[d], d))
	}
	text := "differences: " + strings.Join(parts, "; ")
	if len(parts) == 0 {
		text = "no differences"
	}
	if !g.Counted {
		text += " (nodes do not count connections, or their Traffic cannot be read)"
	}
	return text
}

// describe is one line about a component.
func describe(c *Component) string {
	text := c.ID.String()
	if c.Replicas > 0 || c.Ready > 0 {
		text += fmt.Sprintf("  %d of %d ready", c.Ready, c.Replicas)
	}
	var services []string
	for _, s := range c.Services {
		services = append(services, s.Name+":"+strings.Join(s.Ports, ","))
	}
	if len(services) > 0 {
		text += "  offers " + strings.Join(services, " ")
	}
	if len(c.Data) > 0 {
		text += "  data " + strings.Join(c.Data, " ")
	}
	if c.Layer != "" {
		text += "  layer " + c.Layer
	}
	if c.Owner != "" {
		text += "  owner " + c.Owner
	}
	return text
}

// Mermaid writes the graph as a Mermaid flowchart, with a subgraph for each system.
func (g *Graph) Mermaid(to io.Writer) error {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	number := map[ID]int{}
	for i := range g.Components {
		number[g.Components[i].ID] = i
	}
	if i, ok := number[Outside]; ok {
		fmt.Fprintf(&b, "  c%d((outside))\n", i)
	}
	names, by := g.systems()
	for n, name := range names {
		fmt.Fprintf(&b, "  subgraph s%d[\"%s\"]\n", n, quoted(name))
		for _, c := range by[name] {
			open, end := "[", "]"
			if len(c.Data) > 0 {
				open, end = "[(", ")]"
			}
			fmt.Fprintf(&b, "    c%d%s\"%s\"%s\n", number[c.ID], open, quoted(c.ID.Name), end)
		}
		b.WriteString("  end\n")
	}
	for _, r := range g.Relations {
		arrow := "-->"
		switch style(&r) {
		case unseen:
			arrow = "-.->"
		case contrary:
			arrow = "==>"
		case denied:
			arrow = "--x"
		}
		if label := r.difference(); label != "" {
			arrow += "|" + quoted(label) + "|"
		}
		fmt.Fprintf(&b, "  c%d %s c%d\n", number[r.From], arrow, number[r.To])
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// quoted escapes a text inside of quotes of Mermaid.
func quoted(s string) string {
	return strings.NewReplacer(`"`, "#quot;", "\n", " ", "<", "#lt;", ">", "#gt;").Replace(s)
}

package why

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	columns = 100 // of output
	// mostNodes and mostAffected limit lists of the text; JSON has all of them.
	mostNodes    = 12
	mostAffected = 6
)

// printer writes lines, and keeps the first error.
type printer struct {
	out io.Writer
	err error
}

// line writes one line. It cleans the text once more: names come from the cluster, too.
func (p *printer) line(text string) {
	if p.err == nil {
		text = strings.ReplaceAll(clean(text, maxLogBytes), "\n", " ")
		_, p.err = fmt.Fprintln(p.out, strings.TrimRight(text, " "))
	}
}

// text writes a paragraph whose first line begins with head; the others are indented below it.
func (p *printer) text(head, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(head))
	current, empty := head, true
	for _, word := range strings.Fields(text) {
		switch {
		case empty:
			current, empty = current+word, false
		case utf8.RuneCountInString(current)+1+utf8.RuneCountInString(word) > columns:
			p.line(current)
			current = indent + word
		default:
			current += " " + word
		}
	}
	p.line(current)
}

// fact writes evidence. Further lines, such as those of a log, are kept as they are.
func (p *printer) fact(head, text string) {
	first, rest, _ := strings.Cut(text, "\n")
	p.text(head, first)
	indent := strings.Repeat(" ", utf8.RuneCountInString(head)) + "| "
	for _, line := range strings.Split(rest, "\n") {
		if line == "" {
			continue
		}
		if runes := []rune(indent + line); len(runes) > columns {
			line = string(runes[len([]rune(indent)):columns-1]) + "…"
		}
		p.line(indent + line)
	}
}

// Print writes an answer as text of 100 columns.
func Print(out io.Writer, a *Answer) error {
	p := &printer{out: out}
	p.line(headline(a))
	namespace := a.Scope
	if a.Subject != nil {
		namespace = a.Subject.Namespace
	}
	for i, r := range a.Roots {
		p.line("")
		head := "root cause: "
		if len(a.Roots) > 1 {
			head = fmt.Sprintf("%d. ", i+1)
		}
		p.text(head, inFull(r.Subject, namespace)+": "+r.Problem)
		for _, f := range r.Evidence {
			p.fact("  evidence  ", f.Text)
		}
		if r.Remedy != "" {
			p.text("  remedy    ", r.Remedy)
		}
		if affected := affectedText(a, r, namespace); affected != "" {
			p.text("  affects   ", affected)
		}
		p.nodes(r.Nodes)
	}
	if a.Subject != nil {
		p.chains(a, namespace)
	}
	if len(a.Unread) > 0 {
		p.line("")
		p.line("Not read, so findings may be missing:")
		for _, u := range a.Unread {
			p.text("  ", u)
		}
	}
	return p.err
}

func headline(a *Answer) string {
	where := "the cluster"
	if a.Scope != "" {
		where = "namespace " + a.Scope
	}
	switch {
	case a.denial && len(a.Findings) == 0:
		return "No reason for a denial was found in what could be read."
	case a.denial:
		return "Denied: " + plural(len(a.Roots), "root cause") + "."
	case a.Subject != nil && len(a.Findings) == 0 && len(a.Unread) > 0:
		return a.Subject.String() + inNamespace(a.Subject.Namespace) + ": nothing wrong was found in what could be read."
	case a.Subject != nil && len(a.Findings) == 0:
		return a.Subject.String() + inNamespace(a.Subject.Namespace) + ": nothing is wrong with it."
	case a.Subject != nil:
		return a.Subject.String() + inNamespace(a.Subject.Namespace) + " is not well: " + plural(len(a.Roots), "root cause") + "."
	case len(a.Findings) == 0:
		return fmt.Sprintf("Nothing is wrong in %s: %s examined.", where, plural(a.Looked, "object"))
	}
	return fmt.Sprintf("%s of %s in %s.", plural(len(a.Roots), "root cause"), plural(len(a.Findings), "finding"), where)
}

// inFull names an object, with its namespace if that is not the question's.
func inFull(r Ref, namespace string) string {
	if r.Namespace == "" || r.Namespace == namespace {
		return r.String()
	}
	return r.String() + " (namespace " + r.Namespace + ")"
}

func affectedText(a *Answer, r Root, namespace string) string {
	if a.Subject != nil {
		return ""
	}
	var list []string
	for _, ref := range r.Affects {
		if ref != r.Subject {
			list = append(list, inFull(ref, namespace))
		}
	}
	if len(list) > mostAffected {
		list = append(list[:mostAffected], fmt.Sprintf("and %d more", len(list)-mostAffected))
	}
	return strings.Join(list, ", ")
}

// nodes writes the verdicts of the scheduler.
func (p *printer) nodes(verdicts []NodeVerdict) {
	if len(verdicts) == 0 {
		return
	}
	width := 0
	for _, v := range verdicts[:min(len(verdicts), mostNodes)] {
		width = max(width, utf8.RuneCountInString(v.Node))
	}
	width = min(width, 40)
	for i, v := range verdicts {
		if i == mostNodes {
			p.line(fmt.Sprintf("  ... and %d more nodes; -o json shows all", len(verdicts)-mostNodes))
			return
		}
		when := "not now"
		switch {
		case v.Fits:
			when = "fits"
		case v.Never:
			when = "never"
		}
		var reasons []string
		for _, r := range v.Refusals {
			reasons = append(reasons, r.Reason)
		}
		p.text(fmt.Sprintf("  %-*s  %-7s  ", width, v.Node, when), cmp.Or(strings.Join(reasons, "; "), "it would take the pod"))
	}
}

// chains writes how findings on the subject lead to root causes, if there is more than one step.
func (p *printer) chains(a *Answer, namespace string) {
	long := false
	for _, f := range a.Findings {
		long = long || !f.Root
	}
	if !long {
		return
	}
	p.line("")
	p.line("chain:")
	const most = 3 // causes of one step
	var walk func(f *Finding, depth int)
	walk = func(f *Finding, depth int) {
		head := "  " + strings.Repeat("  ", depth)
		if depth > 0 {
			head += "because "
		}
		p.text(head, inFull(f.Subject, namespace)+": "+f.Problem)
		shown, left := map[string]bool{}, 0
		for _, b := range f.Because {
			key := likeness(b)
			if shown[key] || len(shown) == most {
				left++
				continue
			}
			shown[key] = true
			walk(b, depth+1)
		}
		if left > 0 {
			p.line(fmt.Sprintf("  %s... and %d more", strings.Repeat("  ", depth+1), left))
		}
	}
	for _, f := range a.Findings {
		if !f.Root {
			walk(f, 0)
		}
	}
}

// likeness is equal for findings of one cause with the same root causes, such as those on the pods
// of one workload.
func likeness(f *Finding) string {
	key := f.Cause + " " + f.Subject.Kind
	for _, r := range roots([]*Finding{f}) {
		if r.Finding != f {
			key += " " + r.Subject.Kind + "/" + r.Subject.Namespace + "/" + r.Subject.Name
		}
		key += " " + r.Cause
	}
	return key
}

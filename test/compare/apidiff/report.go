package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// explained lists accepted differences, one regular expression per line;
// docs/reference/differences.md gives the reasons.
//
//go:embed explained.txt
var explained string

// report counts differences by shape.
type report struct {
	mu       sync.Mutex
	sent     int
	differed int
	shapes   map[string]*shape
	stands   []*regexp.Regexp
}

type shape struct {
	name     string
	count    int
	examples []string
	stands   bool
}

func newReport() *report {
	r := &report{shapes: map[string]*shape{}}
	for line := range strings.SplitSeq(explained, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			r.stands = append(r.stands, regexp.MustCompile(line))
		}
	}
	return r
}

// add counts the differences of one request. what is its verb and resource; how describes the
// request in full.
func (r *report) add(what string, list []difference, how func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	if len(list) > 0 {
		r.differed++
	}
	for _, d := range list {
		name := what + ": " + d.shape
		s := r.shapes[name]
		if s == nil {
			s = &shape{name: name, stands: slices.ContainsFunc(r.stands, func(e *regexp.Regexp) bool { return e.MatchString(name) })}
			r.shapes[name] = s
		}
		if s.count++; len(s.examples) < 3 {
			s.examples = append(s.examples, fmt.Sprintf("  upstream: %.1500s\n  knarr:    %.1500s\n%s", d.upstream, d.knarr, how()))
		}
	}
}

func (r *report) sorted() []*shape {
	var list []*shape
	for _, s := range r.shapes {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *shape) int {
		if a.count != b.count {
			return b.count - a.count
		}
		return strings.Compare(a.name, b.name)
	})
	return list
}

// print writes every shape with examples; unexplained reports a shape without a reason.
func (r *report) print(out *strings.Builder, examples int) (unexplained bool) {
	for _, s := range r.sorted() {
		mark := ""
		if s.stands {
			mark = " (explained)"
		}
		unexplained = unexplained || !s.stands
		fmt.Fprintf(out, "%6d  %s%s\n", s.count, s.name, mark)
		for i, e := range s.examples {
			if i < examples {
				out.WriteString(e + "\n")
			}
		}
	}
	return unexplained
}

// summary returns the text for the terminal.
func (r *report) summary() string {
	var b strings.Builder
	open, stands := 0, 0
	for _, s := range r.sorted() {
		if s.stands {
			stands++
			continue
		}
		if open++; open <= 60 {
			fmt.Fprintf(&b, "%6d  %.220s\n", s.count, s.name)
		}
	}
	if open > 60 {
		fmt.Fprintf(&b, "        and %d more shapes\n", open-60)
	}
	fmt.Fprintf(&b, "%d requests, %d answered differently; %d shapes of difference, and %d that docs/reference/differences.md explains\n", r.sent, r.differed, open, stands)
	return b.String()
}

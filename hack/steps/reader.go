package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// reader reads a step's output. Progress goes into its fields, the rest into the log. Lines of
// progress are
//
//	progress: TEXT            what runs now
//	progress: packages 61     how many packages `go test -json` is going to report
//	progress: tests 16        how many tests it is going to report: shown instead of packages
//	note: TEXT                a line that is printed when the step ends
//	{"Action": ...}           an event of `go test -json`
//	progress: compiling TEXT  the lines that follow may be packages that `go build -v` compiles:
//	k8s.io/api/core/v1
//
// It is safe for concurrent use.
type reader struct {
	mu       sync.Mutex
	log      io.Writer
	text     string // what runs now
	compiled int
	compiles string // the package being compiled
	packages int    // total number of packages
	tests    int
	ended    int // finished packages
	tested   int // finished tests
	running  map[string]bool
	results  map[string]*result
	slow     []timed
	notes    []string
}

// timed is a test or a package with its duration in seconds.
type timed struct {
	name    string
	seconds float64
}

// event is an event of `go test -json`; see `go doc test2json` and `go help buildjson`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func newReader(log io.Writer) *reader {
	return &reader{log: log, running: map[string]bool{}, results: map[string]*result{}}
}

// read reads lines until the end.
func (r *reader) read(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(strings.TrimRight(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

var importPath = regexp.MustCompile(`^[a-z0-9][\w.~-]*(/[\w.~+-]+)*$`)

func (r *reader) line(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text, ok := strings.CutPrefix(line, "progress: "); ok {
		r.progress(text)
		return
	}
	var e event
	switch note, ok := strings.CutPrefix(line, "note: "); {
	case ok:
		r.notes = append(r.notes, note)
	case strings.HasPrefix(line, `{"`) && json.Unmarshal([]byte(line), &e) == nil && e.Action != "":
		r.event(e)
	case strings.HasPrefix(r.text, "compiling") && importPath.MatchString(line):
		r.compiled++
		r.compiles = line
	default:
		fmt.Fprintln(r.log, line)
	}
}

func (r *reader) progress(text string) {
	what, number, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	switch {
	case err == nil && what == "packages":
		r.packages += n
	case err == nil && what == "tests":
		r.tests += n
	default:
		r.text, r.compiles = text, ""
		fmt.Fprintln(r.log, "== "+text)
	}
}

func (r *reader) event(e event) {
	if e.Package == "" { // an event of a build
		fmt.Fprint(r.log, e.Output)
		return
	}
	p := r.results[e.Package]
	if p == nil {
		p = &result{outcome: map[string]string{}}
		r.results[e.Package] = p
	}
	r.compiles = ""
	top := e.Test != "" && !strings.Contains(e.Test, "/")
	switch e.Action {
	case "start", "run":
		if e.Test == "" || top {
			r.running[e.name()] = true
			r.text = e.name()
		}
	case "output":
		p.lines = append(p.lines, outputLine{e.Test, e.Output})
	case "pass", "fail", "skip":
		delete(r.running, e.name())
		p.outcome[e.Test] = e.Action
		if top {
			r.tested++
		}
		if top || e.Test == "" {
			r.slow = append(r.slow, timed{e.name(), e.Elapsed})
		}
		if e.Test == "" {
			r.ended++
			p.write(r.log)
			delete(r.results, e.Package)
		}
	}
}

// name returns the test's or package's name without this repository's prefix.
func (e event) name() string {
	short := strings.TrimPrefix(e.Package, "github.com/knarr-project/knarr/")
	if e.Test == "" {
		return short
	}
	return short + "." + e.Test
}

// finish writes the output of tests that have not ended.
func (r *reader) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, p := range r.results {
		fmt.Fprintf(r.log, "FAIL\t%s\tdid not end\n", name)
		p.outcome[""] = "fail"
		p.write(r.log)
	}
}

// String describes the progress of the step.
func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.text
	if r.compiles != "" {
		now = r.compiles
	} else if !r.running[now] {
		for name := range r.running { // prefer a running test to a package
			if r.running[now] && len(name) < len(now) {
				continue
			}
			now = name
		}
	}
	if now != "" && len(now) > 48 {
		now = "…" + now[len(now)-47:]
	}
	switch {
	case r.compiles != "":
		return fmt.Sprintf("%d packages compiled: %s", r.compiled, now)
	case r.tests > 0 && r.tested+len(r.running) > 0:
		return fmt.Sprintf("test %d of %d: %s", min(r.tested+1, r.tests), r.tests, now)
	case r.packages > 0 && r.ended+len(r.running) > 0:
		return fmt.Sprintf("package %d of %d: %s", min(r.ended+1, r.packages), r.packages, now)
	}
	return now
}

// result is the output and outcome of a package's tests.
type result struct {
	lines   []outputLine
	outcome map[string]string // by test; "" is the package
}

type outputLine struct{ test, text string }

// write writes what `go test` prints without -v: the package's own lines, and all lines of tests
// that failed or did not end.
func (p *result) write(to io.Writer) {
	for _, l := range p.lines {
		switch {
		case l.test == "" && (l.text == "PASS\n" || l.text == "FAIL\n" || strings.HasPrefix(l.text, "testing: warning")):
		case strings.HasPrefix(l.text, "=== "):
		case l.test == "" || p.outcome[l.test] != "pass" && p.outcome[l.test] != "skip":
			_, _ = io.WriteString(to, l.text)
		}
	}
}

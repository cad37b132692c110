package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// matters matches lines that name failures. Subtests are indented.
var matters = regexp.MustCompile(`^ *--- FAIL|^(FAIL|panic:|fatal error:|lint:|.*error:|Summarizing|\[FAIL\])|DATA RACE|^\S+\.go:\d+:\d+: |^[\w.-]+\.sh: `)

// causes matches the lines to repeat at the very end.
var causes = regexp.MustCompile(`^ *--- FAIL|^FAIL\s+\S|^panic:|^fatal error:|DATA RACE|^ *\[FAIL\]|^lint:|^\S+\.go:\d+:\d+: |^[\w.-]+\.sh: |^tree: |^make: \*\*\*`)

// noise matches lines of packages that passed.
var noise = regexp.MustCompile(`^(ok|\?) `)

// excerpts returns the relevant parts of a failed step's log: its end, and matching lines with some
// that follow.
func excerpts(log string) (end, parts []string) {
	var lines []string
	for _, line := range strings.Split(strings.TrimRight(log, "\n"), "\n") {
		if !noise.MatchString(strings.ReplaceAll(line, "\t", " ")) {
			lines = append(lines, line)
		}
	}
	end = lines[max(0, len(lines)-30):]
	const follow = 25
	until := -1
	for i, line := range lines {
		if matters.MatchString(line) {
			until = i + follow
		}
		if i <= until {
			parts = append(parts, line)
		}
	}
	return end, parts[max(0, len(parts)-100):]
}

// brief returns the causes of a failed step, without duplicates.
func brief(log string, most int) []string {
	var found []string
	for _, line := range strings.Split(log, "\n") {
		if causes.MatchString(line) && !slices.Contains(found, line) && len(found) < most {
			found = append(found, line)
		}
	}
	return found
}

// report prints failures and the closing lines, and reports whether all steps passed.
func (r *run) report(s *screen) bool {
	var good, bad, out []*job
	for _, j := range r.jobs {
		switch j.state {
		case passed:
			good = append(good, j)
		case failed:
			bad = append(bad, j)
		default:
			out = append(out, j)
		}
	}
	for _, j := range bad {
		if j.lane == "" {
			continue // without a log
		}
		end, parts := excerpts(r.log(j))
		s.line("--- %s: the end of %s", j.name, r.path(j))
		s.line("%s", strings.Join(end, "\n"))
		if len(parts) > 0 && !slices.Equal(parts, end) {
			s.line("--- %s: the part of %s that matters", j.name, r.path(j))
			s.line("%s", strings.Join(parts, "\n"))
		}
	}
	packages, conformance := 0, ""
	for _, j := range r.jobs {
		log := r.log(j)
		switch j.name {
		case "unit", "e2e", "quick":
			packages += len(regexp.MustCompile(`(?m)^ok\s`).FindAllString(log, -1))
		case "conformance":
			if found := regexp.MustCompile(`(?m)^conformance: (\d+) passed`).FindAllStringSubmatch(log, -1); found != nil {
				conformance = found[len(found)-1][1]
			}
		}
	}
	s.line("steps: %d of %d; packages with tests: %d; conformance tests: %s; %s", len(good), len(r.jobs), packages, cmp.Or(conformance, "0"), minutes(r.took))
	s.line("%d passed, %d failed", len(good), len(bad))
	for _, j := range bad {
		s.line("failed: %s (%s)", j.name, j.reason)
		for _, line := range brief(r.log(j), 20) {
			s.line("%s", line)
		}
	}
	for _, j := range out {
		s.line("not run: %s (needs %s)", j.name, strings.Join(j.needs, ", "))
	}
	return len(bad) == 0 && len(out) == 0
}

func (r *run) path(j *job) string { return filepath.Join(r.logs, j.name+".log") }

func (r *run) log(j *job) string {
	if j.lane == "" || j.state == waiting || j.state == leftOut {
		return "" // an existing file belongs to an earlier run
	}
	text, _ := os.ReadFile(r.path(j))
	return string(text)
}

// writeSlow writes the list of a step's slowest tests.
func (r *run) writeSlow(j *job) {
	if j.out == nil || len(j.out.slow) == 0 {
		return
	}
	slow := slices.Clone(j.out.slow)
	slices.SortFunc(slow, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	var text strings.Builder
	for _, t := range slow[:min(30, len(slow))] {
		fmt.Fprintf(&text, "%7.2f s  %s\n", t.seconds, t.name)
	}
	_ = os.WriteFile(filepath.Join(r.logs, j.name+".slow"), []byte(text.String()), 0o644)
}

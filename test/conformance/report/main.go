// Report DIR OUT [LIST]... reads the JUnit files of the suite in DIR. It writes a table of passed,
// failed and not run tests by SIG to OUT (Markdown), the full names of the passed tests to
// passed.txt beside OUT, ready for a list, and prints one line. Every test named in a LIST must
// have run and passed.
package main

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type suites struct {
	Suites []struct {
		Cases []struct {
			Name   string  `xml:"name,attr"`
			Status string  `xml:"status,attr"`
			Time   float64 `xml:"time,attr"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type row struct{ passed, failed, notRun int }

var (
	prefix = regexp.MustCompile(`^\[It\] `)
	// JUnit names end in version constraints, which are no part of a test's name.
	constraint = regexp.MustCompile(` \[kubelet: \[[^\]]*\]\]$`)
	labels     = regexp.MustCompile(`\s*\[(Conformance|NodeConformance|Slow|Serial|Disruptive|sig-[a-z-]+|Feature:[^\]]+|FeatureGate:[^\]]+|MinimumKubeletVersion:[^\]]+|LinuxOnly|Alpha|Beta)\]`)
	sig        = regexp.MustCompile(`\[(sig-[a-z-]+)\]`)
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: report DIR OUT [LIST]...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(dir, out string, lists []string) error {
	status, err := read(dir)
	if err != nil {
		return err
	}
	table, failed := map[string]*row{}, []string{}
	var passed []string
	for name, s := range status {
		skipped := s == "skipped" || s == "pending"
		if skipped && !strings.Contains(name, "[Conformance]") {
			continue // thousands of tests, in every run
		}
		key := "unknown"
		if m := sig.FindStringSubmatch(name); m != nil {
			key = m[1]
		}
		r := table[key]
		if r == nil {
			r = &row{}
			table[key] = r
		}
		switch {
		case s == "passed":
			r.passed++
			passed = append(passed, name)
		case skipped:
			r.notRun++
		default:
			r.failed++
			failed = append(failed, name)
		}
	}
	slices.Sort(failed)
	slices.Sort(passed)
	if err := os.WriteFile(out, []byte(markdown(table, failed, passed)), 0o644); err != nil {
		return err
	}
	names := filepath.Join(filepath.Dir(out), "passed.txt")
	if err := os.WriteFile(names, []byte(strings.Join(append(passed, ""), "\n")), 0o644); err != nil {
		return err
	}
	for _, name := range failed {
		fmt.Println("[FAIL]", name)
	}
	fmt.Printf("conformance: %d passed, %d failed\n", len(passed), len(failed))
	var errs []error
	for _, list := range lists {
		errs = append(errs, all(list, passed))
	}
	return errors.Join(errs...)
}

// read returns each test's status. A test that one file skips and another one runs
// counts as run.
func read(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.xml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no JUnit files in %s: the suite did not end by itself", dir)
	}
	status := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var s suites
		if err := xml.Unmarshal(data, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, suite := range s.Suites {
			for _, c := range suite.Cases {
				if !prefix.MatchString(c.Name) {
					continue
				}
				name := constraint.ReplaceAllString(prefix.ReplaceAllString(c.Name, ""), "")
				if old := status[name]; old == "" || old == "skipped" {
					status[name] = c.Status
				}
			}
		}
	}
	return status, nil
}

func markdown(table map[string]*row, failed, passed []string) string {
	var b strings.Builder
	b.WriteString("| SIG | passed | failed | not run |\n|---|---:|---:|---:|\n")
	var sum row
	for _, key := range slices.Sorted(maps.Keys(table)) {
		r := table[key]
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", key, r.passed, r.failed, r.notRun)
		sum.passed, sum.failed, sum.notRun = sum.passed+r.passed, sum.failed+r.failed, sum.notRun+r.notRun
	}
	fmt.Fprintf(&b, "| **all** | **%d** | **%d** | **%d** |\n", sum.passed, sum.failed, sum.notRun)
	if len(failed) > 0 {
		b.WriteString("\nFailed:\n\n")
		for _, name := range failed {
			fmt.Fprintf(&b, "- %s\n", short(name))
		}
	}
	b.WriteString("\n<details><summary>Passed</summary>\n\n")
	for _, name := range passed {
		fmt.Fprintf(&b, "- %s\n", short(name))
	}
	b.WriteString("\n</details>\n")
	return b.String()
}

// short removes the labels that every name carries.
func short(name string) string {
	s := ""
	if m := sig.FindStringSubmatch(name); m != nil {
		s = m[1] + ": "
	}
	return s + strings.TrimSpace(labels.ReplaceAllString(name, ""))
}

// all checks that each name in the list is part of a test that passed.
func all(list string, passed []string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	var missing []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		want := strings.TrimSpace(lines.Text())
		if want == "" || strings.HasPrefix(want, "#") {
			continue
		}
		if !slices.ContainsFunc(passed, func(name string) bool { return strings.Contains(name, want) }) {
			missing = append(missing, want)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d tests of %s did not pass:\n%s", len(missing), list, strings.Join(missing, "\n"))
	}
	return nil
}

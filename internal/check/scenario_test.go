package check_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/check"
)

var update = flag.Bool("update", false, "write the results of the scenarios into their files")

// A scenario is a file in the txtar format: a comment with options, files, and the expected output
// under "want", the expected patch under "patch". Options are lines such as "closed", "crds DIR",
// "pod-security LEVEL", "namespace NAME", "output FORMAT" and "excerpts" after "options:".
func TestScenarios(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			runScenario(t, name)
		})
	}
}

type part struct{ name, text string }

func readParts(t *testing.T, name string) (comment string, parts []part) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitAfterSeq(string(data), "\n") {
		title, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- ")
		if title, end := strings.CutSuffix(title, " --"); ok && end {
			parts = append(parts, part{name: title})
		} else if len(parts) == 0 {
			comment += line
		} else {
			parts[len(parts)-1].text += line
		}
	}
	return comment, parts
}

func runScenario(t *testing.T, name string) {
	comment, parts := readParts(t, name)
	want := map[string]string{}
	absolute, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	opts := check.Options{Recursive: true, Files: []string{"."}}
	for _, p := range parts {
		switch {
		case p.name == "want" || p.name == "patch":
			want[p.name] = p.text
			continue
		case p.name == "stdin":
			opts.Files, opts.Stdin = []string{"-"}, strings.NewReader(p.text)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p.name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.name, []byte(p.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	format, excerpts := check.Text, false
	_, options, _ := strings.Cut(comment, "options:")
	for line := range strings.SplitSeq(options, "\n") {
		word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "closed":
			opts.Closed = true
		case "files":
			opts.Files = strings.Fields(value)
		case "kustomize":
			opts.Files, opts.Kustomize = nil, append(opts.Kustomize, value)
		case "crds":
			opts.CRDs = append(opts.CRDs, value)
		case "pod-security":
			opts.PodSecurity = value
		case "namespace":
			opts.Namespace = value
		case "output":
			format = check.Format(value)
		case "excerpts":
			excerpts = true
		case "":
		default:
			t.Fatalf("unknown option %q", word)
		}
	}
	report, err := check.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report.Write(&out, format, excerpts); err != nil {
		t.Fatal(err)
	}
	if format == check.Text {
		out.WriteString(report.Summary() + "\n")
	}
	got := map[string]string{"want": out.String()}
	if fixes := report.Fixes(); len(fixes) > 0 {
		for _, f := range fixes {
			got["patch"] += f.Diff()
		}
	}
	if *update {
		rewrite(t, absolute, comment, parts, got)
		return
	}
	for _, section := range []string{"want", "patch"} {
		if got[section] != want[section] {
			t.Errorf("%s:\n%s\nbut want:\n%s", section, got[section], want[section])
		}
	}
}

func rewrite(t *testing.T, name, comment string, parts []part, got map[string]string) {
	t.Helper()
	text := comment
	for _, p := range parts {
		if p.name != "want" && p.name != "patch" {
			text += "-- " + p.name + " --\n" + p.text
		}
	}
	for _, section := range []string{"want", "patch"} {
		if got[section] != "" {
			text += "-- " + section + " --\n" + got[section]
		}
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

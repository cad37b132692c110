package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostByOthers limits the blocks of docs/operations that no walk runs.
const mostByOthers = 4

// TestEachCommandOfOperationsRuns checks that a test runs each command line in a block of
// docs/operations. A walk of test/e2e does, for a page of a scenario. An exception names its test.
func TestEachCommandOfOperationsRuns(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs/operations/*.md"))
	if err != nil || len(names) < 10 {
		t.Fatalf("pages: %v, %v", names, err)
	}
	byOthers := 0
	for _, name := range names {
		short := strings.TrimSuffix(filepath.Base(name), ".md")
		p, err := ReadPage(root, "docs/operations/"+filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		if test := OtherTests[short]; test != "" {
			needTest(t, p, 1, test)
			continue
		}
		commands := false
		for _, b := range p.Blocks {
			problem, ran := wayToRun(&b)
			if test := b.RunBy(); test != "" {
				needTest(t, p, b.Line, test)
				byOthers++
			}
			if problem != "" {
				t.Errorf("%s:%d: %s", p.Path, b.Line, problem)
			}
			commands = commands || ran
		}
		if n := scenariosOf(short); commands && n != 1 {
			t.Errorf("%s is in %d scenarios of test/docs/operations.go, want one", p.Path, n)
		}
	}
	if byOthers > mostByOthers {
		t.Errorf("%d blocks of docs/operations name another test, at most %d may", byOthers, mostByOthers)
	}
}

// wayToRun says whether a walk runs commands of the block, and what is wrong with it.
func wayToRun(b *Block) (problem string, runs bool) {
	if _, _, file := b.File(); file || b.RunBy() != "" {
		return "", false
	}
	if b.Has("skip") {
		return "the block is skipped: no test runs it (`<!-- walk: by TestName -->` names one that does)", false
	}
	switch b.Language {
	case "console":
		if len(b.Steps()) == 0 {
			return "no line begins with a prompt, such as `first$ `", false
		}
		return "", true
	case "text", "ini", "yaml", "json":
		return "", false
	}
	return "commands are in a block ```console, after a prompt that names the machine, such as `first$ `", false
}

func scenariosOf(page string) (n int) {
	for _, s := range Operations {
		if slices.Contains(s.Pages, page) {
			n++
		}
	}
	return n
}

// needTest checks that a test function of this name exists.
func needTest(t *testing.T, p *Page, line int, name string) {
	t.Helper()
	out, err := exec.Command("grep", "-rlF", "--include=*_test.go", "func "+name+"(t *testing.T)", root).Output()
	if err != nil || len(out) == 0 {
		t.Errorf("%s:%d: there is no %s", p.Path, line, name)
	}
}

// TestScenariosNameExistingPages checks the pages of the scenarios, and that their prompts name
// machines of them.
func TestScenariosNameExistingPages(t *testing.T) {
	for _, s := range Operations {
		for _, page := range s.Pages {
			name := "docs/operations/" + page + ".md"
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("scenario %q: %v", s.Name, err)
				continue
			}
			p, err := ReadPage(root, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range p.Blocks {
				for _, step := range b.Steps() {
					if step.Machine != "" && !slices.Contains(s.Machines, step.Machine) {
						t.Errorf("%s:%d: scenario %q has no machine %q", name, step.Line, s.Name, step.Machine)
					}
				}
			}
		}
	}
}

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is a step that runs a line of shell.
func script(name, lane, line string, needs ...string) step {
	return step{name: name, lane: lane, needs: needs, command: []string{"bash", "-c", line}}
}

// perform runs a plan in dir and returns its output.
func perform(t *testing.T, ctx context.Context, dir string, all []step, names ...string) (bool, string) {
	t.Helper()
	var out bytes.Buffer
	ok, err := steps(ctx, all, names, dir, &screen{to: &out, width: 100, printed: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return ok, out.String()
}

func contains(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func TestAFailureIsPrintedLastAndStopsWhatNeedsIt(t *testing.T) {
	t.Parallel()
	ok, out := perform(t, t.Context(), t.TempDir(), []step{
		script("good", "a", "echo fine"),
		script("bad", "a", "echo before; echo 'lint: a file is wrong'; exit 3", "good"),
		script("dependent", "b", "echo dependent ran >&2", "bad"),
		script("independent", "a", "echo note: look here", "good"),
	})
	if ok {
		t.Error("a run with a failed step is green")
	}
	contains(t, out, "\n  look here\n", "--- bad: the end of", "2 passed, 1 failed\nfailed: bad (exit status 3)\nlint: a file is wrong\nnot run: dependent (needs bad)\n")
	if strings.Contains(out, "dependent ran") {
		t.Error("a step ran although its need had failed")
	}
}

func TestLanesRunSideBySide(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Each waits for the other's file, which only concurrent lanes can provide.
	meet := func(mine, other string) string {
		return "touch " + dir + "/" + mine + "; for i in $(seq 600); do [ -e " + dir + "/" + other + " ] && exit 0; sleep 0.1; done; exit 1"
	}
	ok, out := perform(t, t.Context(), dir, []step{script("one", "a", meet("1", "2")), script("two", "b", meet("2", "1"))})
	if !ok {
		t.Error(out)
	}
	contains(t, out, "2 passed, 0 failed")
}

func TestOnlyNamedStepsRun(t *testing.T) {
	t.Parallel()
	all := []step{script("one", "a", "exit 1"), script("two", "a", "true", "one")}
	if ok, out := perform(t, t.Context(), t.TempDir(), all, "two"); !ok {
		t.Error(out)
	}
	if _, err := choose(all, []string{"three"}); err == nil || !strings.Contains(err.Error(), "one, two") {
		t.Errorf("an unknown step's error does not list the steps: %v", err)
	}
}

func TestEveryNeedIsAnEarlierStep(t *testing.T) {
	t.Parallel()
	var before []string
	for _, s := range plan {
		for _, need := range s.needs {
			if !slices.Contains(before, need) {
				t.Errorf("%s needs %s, which is no step before it", s.name, need)
			}
		}
		before = append(before, s.name)
		if path := filepath.Join("../..", s.command[0]); s.command[0] != "make" {
			if info, err := os.Stat(path); err != nil || info.Mode()&0o100 == 0 {
				t.Errorf("%s: %s is no program: %v", s.name, path, err)
			}
		}
	}
}

func TestAStoppedStepLeavesNoProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "began")); err == nil {
				stop()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	marker := filepath.Join(dir, "marker")
	// A background process holds the output open and ignores all signals but KILL.
	ok, out := perform(t, ctx, dir, []step{
		script("long", "a", "(trap '' TERM; exec -a "+marker+" bash -c 'while :; do sleep 0.1; done') & touch "+dir+"/began; wait"),
		script("next", "a", "true", "long"),
	})
	if ok {
		t.Error("a run that was stopped is green")
	}
	contains(t, out, "failed: long (stopped)", "not run: next")
	if left, _ := exec.Command("pgrep", "-f", marker).Output(); len(left) > 0 {
		t.Errorf("processes are left: %s", left)
	}
}

func TestAChangedWorkTreeFailsTheRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git: %v\n%s", err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write(".gitignore", "/.cache/\n")
	write("go.sum", "sum\n")
	write("edited", "before\n")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	write("edited", "an edit of the day\n")
	if ok, out := perform(t, t.Context(), dir, []step{script("quiet", "a", "true")}); !ok {
		t.Errorf("an edit before the run counts as a step's:\n%s", out)
	}
	ok, out := perform(t, t.Context(), dir, []step{script("loud", "a", "echo more >>"+dir+"/go.sum; echo more >>"+dir+"/edited; touch "+dir+"/new")})
	if ok {
		t.Error("a run that changes the tree is green")
	}
	contains(t, out, "1 passed, 1 failed", "failed: clean tree (changed while the steps ran: edited go.sum new)")
}

func TestTheExpectationIsTheLastRunsDuration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "seconds")
	if err := writeTimes(path, map[string]time.Duration{"unit": 241400 * time.Millisecond, whole: time.Minute}); err != nil {
		t.Fatal(err)
	}
	times := readTimes(path)
	if times["unit"] != 241*time.Second || times[whole] != time.Minute || len(times) != 2 {
		t.Errorf("read back: %v", times)
	}
	r := &run{jobs: []*job{
		{step: step{name: "a", lane: "1"}, expected: time.Minute},
		{step: step{name: "b", lane: "2"}, expected: 90 * time.Second},
		{step: step{name: "c", lane: "1"}, expected: time.Minute},
	}}
	if got := r.expectation(); got != 2*time.Minute {
		t.Errorf("expectation is %v; the longest lane takes 2m", got)
	}
}

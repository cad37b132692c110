package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ok, err := steps(ctx, plan, os.Args[1:], ".", newScreen(os.Stdout))
	if err != nil {
		fmt.Fprintln(os.Stderr, "steps:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// steps runs the named steps of a plan in dir, or all steps without names. It reports whether all
// passed.
func steps(ctx context.Context, all []step, names []string, dir string, s *screen) (bool, error) {
	chosen, err := choose(all, names)
	if err != nil {
		return false, err
	}
	logs := filepath.Join(dir, ".cache", "test")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return false, err
	}
	before, unknown := readTree(dir)
	times := readTimes(filepath.Join(logs, "seconds"))
	r := &run{began: time.Now(), logs: logs}
	for _, st := range chosen {
		j := &job{step: st, expected: times[st.name]}
		if j.expected == 0 {
			j.expected = st.cold
		}
		r.jobs = append(r.jobs, j)
	}
	expected := r.expectation()
	if len(names) == 0 && times[whole] > 0 {
		expected = times[whole]
	}
	var printing sync.Mutex
	r.ended = func(j *job) {
		printing.Lock()
		defer printing.Unlock()
		r.printResult(s, j)
	}
	done := make(chan struct{})
	go func() { defer close(done); r.start(ctx) }()
	for tick := time.NewTicker(time.Second); ; {
		select {
		case now := <-tick.C:
			printing.Lock()
			s.progress(now, r.describe(now, expected))
			printing.Unlock()
			continue
		case <-done:
		}
		tick.Stop()
		break
	}
	r.took = time.Since(r.began)
	if unknown == nil { // unknown is set if git is missing or the folder is no work tree
		r.compare(s, dir, before)
	}
	ok := r.report(s)
	for _, j := range r.jobs {
		if j.state == passed && j.lane != "" {
			times[j.name] = j.took
		}
	}
	if ok && len(names) == 0 {
		times[whole] = r.took
	}
	return ok, writeTimes(filepath.Join(logs, "seconds"), times)
}

// expectation returns the expected duration of the run: that of the longest lane.
func (r *run) expectation() (longest time.Duration) {
	for _, lane := range r.lanes() {
		var sum time.Duration
		for _, j := range lane {
			sum += j.expected
		}
		longest = max(longest, sum)
	}
	return longest
}

// printResult prints how a step ended, with the causes of a failure.
func (r *run) printResult(s *screen, j *job) {
	switch j.state {
	case passed:
		s.line("%-14s ok      %4ds", j.name, int(j.took.Seconds()))
	case failed:
		s.line("%-14s FAILED  %4ds  %s", j.name, int(j.took.Seconds()), j.reason)
		for _, line := range brief(r.log(j), 5) {
			s.line("  %s", line)
		}
	default:
		s.line("%-14s not run: it needs %s", j.name, strings.Join(j.needs, ", "))
	}
	if j.out != nil {
		for _, note := range j.out.notes {
			s.line("  %s", note)
		}
	}
	r.writeSlow(j)
}

// compare adds a failing step if files of the work tree changed during the run, because steps must
// not change it.
func (r *run) compare(s *screen, dir string, before tree) {
	j := &job{step: step{name: "clean tree"}, state: passed}
	after, err := readTree(dir)
	switch changed := before.changes(after); {
	case err != nil:
		j.state, j.reason = failed, err.Error()
	case len(changed) > 0:
		j.state, j.reason = failed, "changed while the steps ran: "+strings.Join(changed, " ")
	}
	r.jobs = append(r.jobs, j)
	r.printResult(s, j)
}

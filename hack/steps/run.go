package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// state is the state of a step in a run.
type state int

const (
	waiting state = iota
	running
	passed
	failed
	leftOut // a step that it needs has not passed
)

// job is a step in a run.
type job struct {
	step
	state    state
	began    time.Time
	took     time.Duration
	expected time.Duration
	out      *reader
	reason   string // of a failure, in addition to the command's exit code
}

// run is one run of some steps.
type run struct {
	mu    sync.Mutex
	jobs  []*job
	began time.Time
	took  time.Duration
	logs  string // folder
	ended func(*job)
}

// start runs all steps and returns when the last one has ended. When ctx ends, running steps are
// stopped and the others do not start.
func (r *run) start(ctx context.Context) {
	var lanes sync.WaitGroup
	change := sync.NewCond(&r.mu)
	for _, lane := range r.lanes() {
		lanes.Go(func() {
			for _, j := range lane {
				r.mu.Lock()
				for !r.ready(j) {
					change.Wait()
				}
				if !r.has(j, passed) || ctx.Err() != nil {
					j.state = leftOut
				} else {
					j.state, j.began = running, time.Now()
				}
				r.mu.Unlock()
				if j.state == running {
					err := r.execute(ctx, j)
					r.mu.Lock()
					j.took, j.state = time.Since(j.began), passed
					if err != nil {
						j.state, j.reason = failed, err.Error()
					}
					r.mu.Unlock()
				}
				r.ended(j)
				change.Broadcast()
			}
		})
	}
	lanes.Wait()
}

// lanes returns the jobs by lane.
func (r *run) lanes() [][]*job {
	var names []string
	byName := map[string][]*job{}
	for _, j := range r.jobs {
		if byName[j.lane] == nil {
			names = append(names, j.lane)
		}
		byName[j.lane] = append(byName[j.lane], j)
	}
	var lanes [][]*job
	for _, name := range names {
		lanes = append(lanes, byName[name])
	}
	return lanes
}

// ready reports whether it is decided that the job runs or does not run.
func (r *run) ready(j *job) bool {
	return !slices.ContainsFunc(r.needed(j), func(n *job) bool { return n.state == waiting || n.state == running })
}

// has reports whether all steps that the job needs are in that state.
func (r *run) has(j *job, s state) bool {
	return !slices.ContainsFunc(r.needed(j), func(n *job) bool { return n.state != s })
}

func (r *run) needed(j *job) []*job {
	var needed []*job
	for _, other := range r.jobs {
		if slices.Contains(j.needs, other.name) {
			needed = append(needed, other)
		}
	}
	return needed
}

// execute runs the step's command in a session of its own, and ends the whole session with it.
func (r *run) execute(ctx context.Context, j *job) error {
	runtime.LockOSThread() // the parent-death signal is tied to the thread that started the child
	defer runtime.UnlockOSThread()
	log, err := os.Create(filepath.Join(r.logs, j.name+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	r.mu.Lock()
	j.out = newReader(log)
	r.mu.Unlock()
	cmd := exec.Command("nice", append([]string{"-n", strconv.Itoa(j.nice)}, j.command...)...)
	cmd.Stdout, cmd.Stderr = to, to
	cmd.Env = append(os.Environ(), "STEPS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		_, _ = to.Close(), from.Close()
		return err
	}
	_ = to.Close()
	// If each session has a scheduling group, nice only has an effect inside the group. Without
	// such groups the file does not exist.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(strconv.Itoa(j.nice)), 0)
	read := make(chan struct{})
	go func() { defer close(read); j.out.read(from) }()
	done := make(chan struct{})
	watched := make(chan error, 1)
	go func() { watched <- watch(ctx, cmd.Process.Pid, done) }()
	err = cmd.Wait()
	endSession(cmd.Process.Pid)
	// A process that left the session may hold the pipe.
	select {
	case <-read:
	case <-time.After(10 * time.Second):
	}
	close(done)
	_ = from.Close()
	<-read
	j.out.finish()
	if late := <-watched; late != nil {
		return late
	}
	return err
}

// watch stops the process group when the context ends or the limit is reached, and returns the
// reason. It returns once done is closed.
func watch(ctx context.Context, group int, done <-chan struct{}) error {
	var late error
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		late = errors.New("stopped")
	case <-time.After(limit):
		late = fmt.Errorf("did not end within %s", limit)
	}
	_ = syscall.Kill(-group, syscall.SIGTERM) // gives it time to clean up
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		_ = syscall.Kill(-group, syscall.SIGKILL)
		<-done
	}
	return late
}

// endSession ends the remaining processes of a step's session.
func endSession(session int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 4 || fields[3] != strconv.Itoa(session) || fields[0] == "Z" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

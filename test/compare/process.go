package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a child process in its own process group. Its output goes to a file.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

func start(dir, name, path string, env []string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log")}
	if err := os.RemoveAll(p.log); err != nil {
		return nil, err
	}
	return p, p.launch(path, append(os.Environ(), env...), args)
}

func (p *process) launch(path string, env, args []string) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, done := exec.Command(path, args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.SysProcAttr = log, log, env, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	go func() { _ = cmd.Wait(); close(done) }()
	return nil
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// restart stops the process and starts it again with the same arguments.
func (p *process) restart() error {
	p.stop()
	return p.launch(p.cmd.Path, p.cmd.Env, p.cmd.Args[1:])
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// lastOutput returns the end of the process's log.
func (p *process) lastOutput() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

// sweep kills all remaining processes: shims and containers outlive their parents.
func sweep() {
	for _, pid := range everything() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// memory returns the sums of RssAnon and RSS of processes in MB, except those named in without.
func memory(pids []int, without ...string) (anon, rss float64) {
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || named(string(status), without) {
			continue
		}
		anon += kilobytes(string(status), "RssAnon:")
		rss += kilobytes(string(status), "VmRSS:")
	}
	return anon / 1e3, rss / 1e3
}

// processor returns the CPU time that processes have used so far, including their ended children.
func processor(pids []int) time.Duration {
	var ticks int64
	for _, pid := range pids {
		fields := stat(pid)
		for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
			if i < len(fields) {
				n, _ := strconv.ParseInt(fields[i], 10, 64)
				ticks += n
			}
		}
	}
	return time.Duration(ticks) * time.Second / 100
}

// stopwatch returns a function that returns the CPU time used since by the server's processes and
// by this one.
func stopwatch(server []*process) func() (serving, loading time.Duration) {
	pids, self := tree(server), []int{os.Getpid()}
	servedBefore, loadedBefore := processor(pids), processor(self)
	return func() (time.Duration, time.Duration) {
		return processor(pids) - servedBefore, processor(self) - loadedBefore
	}
}

// stat returns the fields of a process's /proc/PID/stat after the name.
func stat(pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
}

func named(status string, names []string) bool {
	for _, n := range names {
		if strings.HasPrefix(status, "Name:\t"+n) {
			return true
		}
	}
	return false
}

func kilobytes(status, field string) float64 {
	_, rest, ok := strings.Cut(status, field)
	if !ok {
		return 0
	}
	v, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return v * 1.024
}

// everything returns the pids of all processes in the namespace except the harness's own two. It
// includes processes without a parent, such as shims.
func everything() (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		if pid, _ := strconv.Atoi(filepath.Base(path)); pid != 1 && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// tree returns the pids of processes and all their descendants.
func tree(ps []*process) (out []int) {
	children := map[int][]int{}
	for _, pid := range everything() {
		if fields := stat(pid); len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	var todo []int
	for _, p := range ps {
		todo = append(todo, p.cmd.Process.Pid)
	}
	for len(todo) > 0 {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		out = append(out, pid)
	}
	return out
}

func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// until polls in short intervals, because it measures.
func until(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s", what, limit)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

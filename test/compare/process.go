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

// process is a child in a process group of its own, its output in a file.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

func start(dir, name, path string, env []string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.done) }()
	return p, nil
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

// memory sums RssAnon and RSS of processes and all their descendants, in MB, but not those named in without.
func memory(ps []*process, without ...string) (anon, rss float64) {
	for _, pid := range tree(ps) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || named(string(status), without) {
			continue
		}
		anon += kilobytes(string(status), "RssAnon:")
		rss += kilobytes(string(status), "VmRSS:")
	}
	return anon / 1e3, rss / 1e3
}

// processor is the CPU time that processes and all their descendants have used so far.
func processor(ps []*process) time.Duration {
	var ticks int64
	for _, pid := range tree(ps) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		ticks += user + system
	}
	return time.Duration(ticks) * time.Second / 100
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

// tree is the pids of processes and all their descendants.
func tree(ps []*process) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
	}
	seen := map[int]bool{}
	var out, todo []int
	for _, p := range ps {
		todo = append(todo, p.cmd.Process.Pid)
	}
	for len(todo) > 0 {
		pid := todo[0]
		todo = todo[1:]
		if !seen[pid] {
			seen[pid] = true
			out = append(out, pid)
			todo = append(todo, children[pid]...)
		}
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

// until polls fast, because it measures.
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

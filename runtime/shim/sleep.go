package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// A shim whose pod just runs sleeps: it executes its program again, with the action "sleep". That
// program is a few lines of C (sleep.c). It waits for a request, a new connection or a dead child
// on the same file descriptors, and executes this program with the action "wake". So the process,
// its children and its connections stay, while Go's memory is gone.

const (
	mostFiles = 64
	// A shim that is woken soon sleeps later the next time.
	shortSleep   = time.Minute
	longestAwake = 10 * time.Minute
)

// sleeper decides when the shim sleeps.
type sleeper struct {
	tasks    *tasks
	events   *publisher
	listener *listener
	state    state

	mu    sync.Mutex
	conns map[*conn]struct{}
	last  time.Time // of the last request, answer, event or dead child
	busy  int       // works that are under way besides requests
}

// state is what the process keeps from one program to the next.
type state struct {
	Namespace string
	ID        string // of the pod's first container
	Address   string // of containerd
	Socket    string // of the shim
	Debug     bool

	Awake      time.Duration // how long the shim stays awake without work
	SleepsFrom time.Time
	Conns      []connState
	Containers []containerState
}

type connState struct {
	File     int
	Requests [][]byte // without an answer
}

type containerState struct {
	Request []byte // the CreateTaskRequest
	PID     int
	Direct  bool
	Readers []int
	Kills   int // of the kernel for want of memory
	Group   string
}

// begin announces work, until the returned function is called.
func (s *sleeper) begin() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
		s.last = time.Now()
	}
}

// run sleeps when it is time. While something prevents it, idle is called once.
func (s *sleeper) run(idle func()) {
	if s.state.Awake <= 0 {
		return
	}
	var done time.Time // the last work before idle was called
	for {
		s.mu.Lock()
		last := s.last
		s.mu.Unlock()
		wait := time.Until(last.Add(s.state.Awake))
		if wait <= 0 {
			err := s.sleep()
			switch {
			case err != nil:
				fmt.Fprintf(os.Stderr, "%s: cannot sleep: %v\n", name, err)
				return
			case done != last:
				idle()
				done = last
			}
			wait = s.state.Awake
		}
		time.Sleep(wait)
	}
}

// sleep does not return if the shim can sleep.
func (s *sleeper) sleep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy > 0 || time.Since(s.last) < s.state.Awake || s.events.troubled() {
		return nil
	}
	all := s.tasks.resting()
	if len(all) == 0 {
		return nil
	}
	next := s.state
	next.SleepsFrom, next.Conns, next.Containers = time.Now(), nil, nil
	watched := []int{socketFile}
	var kept []int
	for c := range s.conns {
		requests, ok := c.waiting()
		if !ok {
			return nil
		}
		next.Conns = append(next.Conns, connState{File: c.fd, Requests: requests})
		watched = append(watched, c.fd)
	}
	if len(watched) > mostFiles {
		return nil
	}
	for _, c := range all {
		request, err := proto.Marshal(c.request)
		if err != nil {
			return err
		}
		group := memoryEvents(c.pid)
		next.Containers = append(next.Containers, containerState{
			Request: request, PID: c.pid, Direct: c.direct, Readers: c.readers, Group: group, Kills: kills(group),
		})
		kept = append(kept, c.readers...)
	}
	return next.exec(watched, kept)
}

// exec ends this program and starts sleep.c.
func (n *state) exec(watched, kept []int) error {
	content, err := json.Marshal(n)
	if err != nil {
		return err
	}
	memory, err := unix.MemfdCreate("shim", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(memory)
	numbers := strings.Trim(fmt.Sprint(watched), "[]")
	content = append([]byte(numbers+"\n"), content...)
	for len(content) > 0 {
		written, err := unix.Write(memory, content)
		if err != nil {
			return err
		}
		content = content[written:]
	}
	if err := unix.Dup3(memory, stateFile, unix.O_CLOEXEC); err != nil {
		return err
	}
	kept = append(append(slices.Clone(watched), kept...), stateFile)
	inherit := func(yes bool) error {
		for _, fd := range kept {
			flag := unix.FD_CLOEXEC
			if yes {
				flag = 0
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag); err != nil {
				return err
			}
		}
		return nil
	}
	if err := inherit(true); err != nil {
		return err
	}
	args := []string{os.Args[0], "-namespace", n.Namespace, "-id", n.ID, "-address", n.Address, "sleep"}
	err = syscall.Exec("/proc/self/exe", args, os.Environ())
	return errors.Join(err, inherit(false))
}

// restore reads the state that the previous program of this process left.
func restore() (*state, error) {
	unix.CloseOnExec(stateFile)
	content, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", stateFile))
	if err != nil {
		return nil, err
	}
	// The file descriptor stays in use, for the next state.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), stateFile, unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	_, content, _ = bytes.Cut(content, []byte{'\n'})
	kept := &state{}
	return kept, json.Unmarshal(content, kept)
}

// nextAwake returns how long the shim stays awake after a sleep.
func nextAwake(awake, least, slept time.Duration) time.Duration {
	if slept < shortSleep {
		return min(2*awake, max(longestAwake, least))
	}
	return least
}

// memoryEvents returns the file in which the kernel counts the processes of the container that it
// has killed for want of memory. It is empty if the process has no cgroup of its own for memory.
func memoryEvents(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3 || parts[2] == "/":
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			return "/sys/fs/cgroup/memory" + parts[2] + "/memory.oom_control"
		case parts[1] == "":
			path := "/sys/fs/cgroup" + parts[2] + "/memory.events"
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
	}
	return ""
}

// kills reads the number of killed processes.
func kills(path string) int {
	if path == "" {
		return 0
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		if number, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, _ := strconv.Atoi(number)
			return n
		}
	}
	return 0
}

func (c containerState) container() (*container, error) {
	request := &task.CreateTaskRequest{}
	if err := proto.Unmarshal(c.Request, request); err != nil {
		return nil, err
	}
	for _, fd := range c.Readers {
		unix.CloseOnExec(fd)
	}
	return &container{request: request, pid: c.PID, direct: c.Direct, readers: c.Readers}, nil
}

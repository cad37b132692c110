package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/mount"
	runc "github.com/containerd/go-runc"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// tasks is containerd's task service. It remembers what a later program of this process needs to
// continue, and gives containers their streams without a copy in between.
type tasks struct {
	task.TTRPCTaskService

	mu         sync.Mutex
	containers map[string]*container
	order      []string // the ids of containers in the order of creation
	execs      map[string]bool
}

// container is a container of the pod.
type container struct {
	request *task.CreateTaskRequest // as containerd sent it
	pid     int
	started bool
	adopted bool // by this program, from an earlier one
	// direct says that the container writes into containerd's pipes itself.
	direct  bool
	readers []int // ends of these pipes that keep them open while containerd restarts
	paused  bool
}

func newTasks(service task.TTRPCTaskService) *tasks {
	return &tasks{TTRPCTaskService: service, containers: map[string]*container{}, execs: map[string]bool{}}
}

// Create implements containerd's task service.
func (t *tasks) Create(ctx context.Context, request *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	made := &container{request: proto.CloneOf(request), direct: writesDirectly(request)}
	if made.direct {
		output, readers, err := openOutput(request)
		if err != nil {
			return nil, err
		}
		defer closeOutput(output)
		made.readers = readers
		runc.SetOutput(request.ID, output)
		request = proto.CloneOf(request)
		request.Stdout, request.Stderr = "", ""
	}
	answer, err := t.TTRPCTaskService.Create(ctx, request)
	if err != nil {
		made.close()
		return nil, err
	}
	made.pid = int(answer.Pid)
	t.add(request.ID, made)
	return answer, nil
}

func (t *tasks) add(id string, made *container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.containers[id] = made
	t.order = append(t.order, id)
}

// adopt continues a container of an earlier program of this process.
func (t *tasks) adopt(ctx context.Context, found *container) error {
	request := proto.CloneOf(found.request)
	request.Rootfs = nil // mounted
	if found.direct {
		request.Stdout, request.Stderr = "", ""
	}
	runc.Adopt(request.ID)
	answer, err := t.TTRPCTaskService.Create(ctx, request)
	if err == nil {
		_, err = t.TTRPCTaskService.Start(ctx, &task.StartRequest{ID: request.ID})
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", request.ID, err)
	}
	if int(answer.Pid) != found.pid {
		return fmt.Errorf("container %s has the process %d, not %d", request.ID, answer.Pid, found.pid)
	}
	found.started, found.adopted = true, true
	t.add(request.ID, found)
	return nil
}

// Start implements containerd's task service.
func (t *tasks) Start(ctx context.Context, request *task.StartRequest) (*task.StartResponse, error) {
	answer, err := t.TTRPCTaskService.Start(ctx, request)
	if err == nil && request.ExecID == "" {
		t.change(request.ID, func(c *container) { c.started = true })
	}
	return answer, err
}

// Exec implements containerd's task service.
func (t *tasks) Exec(ctx context.Context, request *task.ExecProcessRequest) (*emptypb.Empty, error) {
	answer, err := t.TTRPCTaskService.Exec(ctx, request)
	if err == nil {
		t.mu.Lock()
		t.execs[request.ID+"/"+request.ExecID] = true
		t.mu.Unlock()
	}
	return answer, err
}

// Delete implements containerd's task service.
func (t *tasks) Delete(ctx context.Context, request *task.DeleteRequest) (*task.DeleteResponse, error) {
	answer, err := t.TTRPCTaskService.Delete(ctx, request)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	if request.ExecID != "" {
		delete(t.execs, request.ID+"/"+request.ExecID)
		t.mu.Unlock()
		return answer, nil
	}
	gone := t.containers[request.ID]
	delete(t.containers, request.ID)
	for i, id := range t.order {
		if id == request.ID {
			t.order = append(t.order[:i], t.order[i+1:]...)
			break
		}
	}
	t.mu.Unlock()
	if gone == nil {
		return answer, nil
	}
	gone.close()
	if gone.adopted && len(gone.request.Rootfs) > 0 {
		return answer, mount.UnmountRecursive(filepath.Join(gone.request.Bundle, "rootfs"), 0)
	}
	return answer, nil
}

// State implements containerd's task service.
func (t *tasks) State(ctx context.Context, request *task.StateRequest) (*task.StateResponse, error) {
	answer, err := t.TTRPCTaskService.State(ctx, request)
	if err == nil && request.ExecID == "" {
		t.change(request.ID, func(c *container) {
			answer.Stdin, answer.Stdout, answer.Stderr = c.request.Stdin, c.request.Stdout, c.request.Stderr
		})
	}
	return answer, err
}

// Pause implements containerd's task service.
func (t *tasks) Pause(ctx context.Context, request *task.PauseRequest) (*emptypb.Empty, error) {
	t.change(request.ID, func(c *container) { c.paused = true })
	return t.TTRPCTaskService.Pause(ctx, request)
}

// Resume implements containerd's task service.
func (t *tasks) Resume(ctx context.Context, request *task.ResumeRequest) (*emptypb.Empty, error) {
	answer, err := t.TTRPCTaskService.Resume(ctx, request)
	if err == nil {
		t.change(request.ID, func(c *container) { c.paused = false })
	}
	return answer, err
}

func (t *tasks) change(id string, fn func(*container)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.containers[id]; c != nil {
		fn(c)
	}
}

// resting returns the containers if all of them just run: no program of this process is needed
// until one of them ends.
func (t *tasks) resting() []*container {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*container
	for _, id := range t.order {
		c := t.containers[id]
		if !c.started || c.paused || !c.quiet() || !alive(c.pid) {
			return nil
		}
		all = append(all, c)
	}
	if len(t.execs) > 0 {
		return nil
	}
	return all
}

// quiet reports whether the shim copies none of the container's streams.
func (c *container) quiet() bool {
	return c.direct || !c.request.Terminal && c.request.Stdin == "" && c.request.Stdout == "" && c.request.Stderr == "" && c.request.Checkpoint == ""
}

func (c *container) close() {
	for _, fd := range c.readers {
		unix.Close(fd)
	}
	c.readers = nil
}

// alive reports whether the child has not ended. A child that has ended stays a zombie until it is
// reaped.
func alive(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == 0
}

// writesDirectly reports whether the container gets containerd's pipes for its output. Terminals
// and standard input stay with containerd's code.
func writesDirectly(request *task.CreateTaskRequest) bool {
	if request.Terminal || request.Stdin != "" || request.Checkpoint != "" || request.Stdout+request.Stderr == "" {
		return false
	}
	for _, path := range []string{request.Stdout, request.Stderr} {
		if path != "" && !isPipe(path) {
			return false
		}
	}
	return true
}

// isPipe reports whether the path is a named pipe, and not a URL of another kind of log.
func isPipe(path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == os.ModeNamedPipe
}

// openOutput opens containerd's pipes for the container, and their other ends for the shim.
func openOutput(request *task.CreateTaskRequest) (output runc.Output, readers []int, err error) {
	defer func() {
		if err != nil {
			closeOutput(output)
			(&container{readers: readers}).close()
		}
	}()
	uid, gid, err := ownerOf(request)
	if err != nil {
		return output, nil, err
	}
	for _, stream := range []struct {
		path string
		file **os.File
	}{{request.Stdout, &output.Stdout}, {request.Stderr, &output.Stderr}} {
		if stream.path == "" {
			continue
		}
		reader, err := unix.Open(stream.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return output, readers, fmt.Errorf("open %s: %w", stream.path, err)
		}
		readers = append(readers, reader)
		// Opening does not block, since the pipe has a reader. Writing does: the container owns the
		// pipe's flags.
		writer, err := unix.Open(stream.path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return output, readers, fmt.Errorf("open %s: %w", stream.path, err)
		}
		*stream.file = os.NewFile(uintptr(writer), stream.path)
		if uid != 0 || gid != 0 {
			if err := unix.Fchown(writer, uid, gid); err != nil {
				return output, readers, fmt.Errorf("change the owner of %s: %w", stream.path, err)
			}
		}
	}
	return output, readers, nil
}

func closeOutput(output runc.Output) {
	for _, file := range []*os.File{output.Stdout, output.Stderr} {
		if file != nil {
			file.Close()
		}
	}
}

// ownerOf returns the user and group that own the container's streams.
func ownerOf(request *task.CreateTaskRequest) (uid, gid int, err error) {
	if request.Options.GetValue() == nil {
		return 0, 0, nil
	}
	decoded, err := typeurl.UnmarshalAny(request.Options)
	if err != nil {
		return 0, 0, err
	}
	known, ok := decoded.(*options.Options)
	if !ok {
		return 0, 0, errors.New("the options are not those of runc")
	}
	return int(known.IoUid), int(known.IoGid), nil
}

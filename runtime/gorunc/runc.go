//go:build inprocess

package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	program "github.com/knarr-project/knarr/runtime/go-runc"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Runc is a client of runc with go-runc's fields and methods.
type Runc struct {
	Command       string
	Log           string
	LogFormat     Format
	PdeathSignal  unix.Signal
	Root          string
	SystemdCgroup bool
}

// Monitor waits for the program runc. The shim sets it to its reaper.
var Monitor ProcessMonitor = program.Monitor

var useMonitor = sync.OnceFunc(func() { program.Monitor = Monitor })

// program returns the client that executes runc.
func (r *Runc) program() *program.Runc {
	useMonitor()
	return &program.Runc{
		Command: r.Command, Log: r.Log, LogFormat: r.LogFormat, PdeathSignal: r.PdeathSignal, Root: r.Root, SystemdCgroup: r.SystemdCgroup,
	}
}

// Create makes a container and its first process, which waits for Start. Options that the shim does
// not use are left to the program.
func (r *Runc) Create(ctx context.Context, id, bundle string, opts *CreateOpts) error {
	if output, ok := outputs.LoadAndDelete(id); ok && opts != nil {
		changed := *opts
		changed.IO = files{IO: opts.IO, output: output.(Output)}
		opts = &changed
	}
	if opts == nil || opts.PidfdSocket != nil || opts.Started != nil || len(opts.ExtraFiles)+len(opts.ExtraArgs) > 0 || r.SystemdCgroup {
		return r.program().Create(ctx, id, bundle, opts)
	}
	if _, running := adopted.Load(id); running {
		return r.adopt(id)
	}
	err := r.create(id, bundle, opts)
	if err != nil {
		err = fmt.Errorf("runc create failed: %w", err)
	}
	return r.logged(err)
}

func (r *Runc) create(id, bundle string, opts *CreateOpts) error {
	spec, err := readSpec(bundle)
	if err != nil {
		return err
	}
	process, err := newProcess(spec.Process)
	if err != nil {
		return err
	}
	process.Init = true
	config, err := newConfig(id, bundle, spec, opts)
	if err != nil {
		return err
	}
	container, err := libcontainer.Create(r.Root, id, config)
	if err != nil {
		return err
	}
	if err := run(container, process, spec.Process.Terminal, opts.IO, opts.ConsoleSocket, opts.PidFile); err != nil {
		return errors.Join(err, container.Destroy())
	}
	created.Store(filepath.Join(r.Root, id), container)
	return nil
}

// created has the containers that this process made: *libcontainer.Container by the folder of the
// state. It saves reading the state, which takes a millisecond. Exec reads it anyway, since it may
// run while the container changes.
var created sync.Map

// find returns a container, whether this process made it or another one.
func (r *Runc) find(id string) (*libcontainer.Container, error) {
	if container, ok := created.Load(filepath.Join(r.Root, id)); ok {
		return container.(*libcontainer.Container), nil
	}
	return libcontainer.Load(r.Root, id)
}

// Exec runs another process in a container.
func (r *Runc) Exec(ctx context.Context, id string, spec specs.Process, opts *ExecOpts) error {
	if opts == nil || !opts.Detach || opts.PidfdSocket != nil || opts.Started != nil || len(opts.ExtraArgs) > 0 {
		return r.program().Exec(ctx, id, spec, opts)
	}
	err := r.exec(id, &spec, opts)
	if err != nil {
		err = fmt.Errorf("exec failed: %w", err)
	}
	return r.logged(err)
}

func (r *Runc) exec(id string, spec *specs.Process, opts *ExecOpts) error {
	container, err := libcontainer.Load(r.Root, id)
	if err != nil {
		return err
	}
	status, err := container.Status()
	if err != nil {
		return err
	}
	switch status {
	case libcontainer.Stopped:
		return errors.New("cannot exec in a stopped container")
	case libcontainer.Paused:
		return errors.New("cannot exec in a paused container")
	}
	process, err := newProcess(spec)
	if err != nil {
		return err
	}
	return run(container, process, spec.Terminal, opts.IO, opts.ConsoleSocket, opts.PidFile)
}

// run starts the process with its standard streams. For a terminal, it sends the terminal's other
// end to the socket.
func run(container *libcontainer.Container, process *libcontainer.Process, terminal bool, streams IO, socket ConsoleSocket, pidFile string) error {
	if terminal != (socket != nil) {
		return errors.New("a process has a terminal if and only if there is a socket for it")
	}
	if terminal {
		console, err := connect(socket.Path())
		if err != nil {
			return err
		}
		defer console.Close()
		process.ConsoleSocket = console
	} else if streams != nil {
		var cmd exec.Cmd
		streams.Set(&cmd) // the only way to get them
		process.Stdin, process.Stdout, process.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	}
	err := children.start(func() error {
		if err := container.Start(process); err != nil {
			return err
		}
		err := writePid(pidFile, process)
		if err != nil {
			_ = process.Signal(unix.SIGKILL)
			_, _ = process.Wait()
		}
		return err
	})
	if closer, ok := streams.(StartCloser); ok && !terminal {
		err = errors.Join(err, closer.CloseAfterStart())
	}
	return err
}

func connect(path string) (*os.File, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.File()
}

func writePid(path string, process *libcontainer.Process) error {
	if path == "" {
		return nil
	}
	pid, err := process.Pid()
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strconv.Itoa(pid)), 0o644)
}

// Start makes a created container's first process execute the container's program.
func (r *Runc) Start(_ context.Context, id string) error {
	if _, running := adopted.LoadAndDelete(id); running {
		return nil
	}
	container, status, err := r.status(id)
	switch {
	case err != nil:
	case status == libcontainer.Created:
		err = container.Exec()
	default:
		err = fmt.Errorf("cannot start a container in the %s state", status)
	}
	return r.logged(err)
}

// Kill sends a signal to the container's first process. If the container shares its process
// namespace, SIGKILL ends all of its processes.
func (r *Runc) Kill(ctx context.Context, id string, signal int, opts *KillOpts) error {
	if opts != nil && len(opts.ExtraArgs) > 0 {
		return r.program().Kill(ctx, id, signal, opts)
	}
	container, err := r.find(id)
	if err == nil {
		err = container.Signal(unix.Signal(signal))
		if opts != nil && opts.All && errors.Is(err, libcontainer.ErrNotRunning) {
			err = nil
		}
	}
	return r.logged(err)
}

// Delete removes a container that has ended or never started. Force ends it first.
func (r *Runc) Delete(ctx context.Context, id string, opts *DeleteOpts) error {
	if opts != nil && len(opts.ExtraArgs) > 0 {
		return r.program().Delete(ctx, id, opts)
	}
	err := r.delete(id, opts != nil && opts.Force)
	if err == nil {
		created.Delete(filepath.Join(r.Root, id))
		Deleted(filepath.Dir(r.Log))
	}
	return r.logged(err)
}

// Deleted is called with the bundle of a deleted container.
var Deleted = func(bundle string) {}

func (r *Runc) delete(id string, force bool) error {
	container, status, err := r.status(id)
	if errors.Is(err, libcontainer.ErrNotExist) {
		// An interrupted create may have left a folder without a state.
		if e := os.RemoveAll(filepath.Join(r.Root, id)); e != nil {
			return e
		}
		if force {
			return nil
		}
	}
	if err != nil {
		return err
	}
	switch {
	case force || status == libcontainer.Created:
		if err := killAndWait(container); err != nil {
			return err
		}
	case status != libcontainer.Stopped:
		return fmt.Errorf("cannot delete container %s that is not stopped: %s", id, status)
	}
	if config := container.Config(); config.Hooks != nil {
		return children.start(container.Destroy) // hooks are processes
	}
	return container.Destroy()
}

// killAndWait kills the container and waits for the end of its first process.
func killAndWait(container *libcontainer.Container) error {
	_ = container.Signal(unix.SIGKILL)
	for wait, deadline := time.Millisecond, time.Now().Add(10*time.Second); time.Now().Before(deadline); wait = min(2*wait, 100*time.Millisecond) {
		if container.Signal(unix.Signal(0)) != nil {
			return nil
		}
		time.Sleep(wait)
	}
	return errors.New("container init still running")
}

// Ps lists the processes of a container. containerd asks when it starts, for every container.
func (r *Runc) Ps(_ context.Context, id string) ([]int, error) {
	container, err := r.find(id)
	if err != nil {
		return nil, r.logged(err)
	}
	pids, err := container.Processes()
	return pids, r.logged(err)
}

func (r *Runc) status(id string) (*libcontainer.Container, libcontainer.Status, error) {
	container, err := r.find(id)
	if err != nil {
		return nil, 0, err
	}
	status, err := container.Status()
	return container, status, err
}

// logged writes an error to the log that the program runc would have written: the shim reads its
// last line.
func (r *Runc) logged(err error) error {
	if err == nil || r.Log == "" {
		return err
	}
	line, e := json.Marshal(map[string]string{"level": "error", "msg": err.Error(), "time": time.Now().Format(time.RFC3339)})
	if e != nil {
		return err
	}
	log, e := os.OpenFile(r.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if e != nil {
		return err // the shim also gets the error itself
	}
	defer log.Close()
	_, _ = log.Write(append(line, '\n'))
	return err
}

// The program runc does the rest.

func (r *Runc) Update(ctx context.Context, id string, resources *specs.LinuxResources) error {
	return r.program().Update(ctx, id, resources)
}

func (r *Runc) Pause(ctx context.Context, id string) error { return r.program().Pause(ctx, id) }

func (r *Runc) Resume(ctx context.Context, id string) error { return r.program().Resume(ctx, id) }

func (r *Runc) Checkpoint(ctx context.Context, id string, opts *CheckpointOpts, actions ...CheckpointAction) error {
	return r.program().Checkpoint(ctx, id, opts, actions...)
}

func (r *Runc) Restore(ctx context.Context, id, bundle string, opts *RestoreOpts) (int, error) {
	return r.program().Restore(ctx, id, bundle, opts)
}

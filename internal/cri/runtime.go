package cri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	startTimeout = 30 * time.Second // a slow disk with a large metadata database
	stopTimeout  = 10 * time.Second
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	healthyAfter = 30 * time.Second // a containerd that ran this long is not broken
	maxLogSize   = 16 << 20
)

// Runtime is the included containerd, running and connected.
type Runtime struct {
	*Services
	// Socket is the path of containerd's own API, for image tools.
	Socket string
	// Snapshotter is the effective one: "overlayfs" or "native".
	Snapshotter string

	config      Config
	programs    string // the folder of the unpacked programs
	program     string
	configFile  string
	fingerprint string
	lockFile    *os.File // the lock
	stopped     chan struct{}
	lost        leftovers // of the containerd before the one that was started last
	sweeping    sync.WaitGroup

	mu      sync.Mutex // guards running
	running *process
}

// Start starts the included containerd, or adopts the one that an earlier knarr left, and returns
// once CRI answers. It supervises containerd until ctx ends. Then it stops containerd but no
// container, and Wait returns.
func Start(ctx context.Context, config Config) (*Runtime, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	runtime, err := prepare(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("start container runtime: %w", err)
	}
	if err := runtime.startProcess(ctx); err != nil {
		runtime.lockFile.Close()
		return nil, fmt.Errorf("start container runtime: %w", err)
	}
	services, err := connectWhenReady(ctx, config.socket(), config.Connection)
	if err != nil {
		runtime.running.stop(stopTimeout)
		runtime.lockFile.Close()
		return nil, fmt.Errorf("start container runtime: %w", err)
	}
	runtime.Services = services
	runtime.sweepLater(ctx)
	go runtime.supervise(ctx)
	return runtime, nil
}

// connectWhenReady connects once CRI answers. containerd listens before its CRI plugin has
// recovered the pods of an earlier run, and answers "unavailable" until then.
func connectWhenReady(ctx context.Context, socket string, o Options) (*Services, error) {
	deadline := time.Now().Add(startTimeout)
	for {
		services, err := Connect(ctx, socket, o)
		if err == nil || !strings.Contains(err.Error(), "code = Unavailable") || time.Now().After(deadline) {
			return services, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Wait waits until containerd has been stopped after the end of Start's context.
func (r *Runtime) Wait() { <-r.stopped }

// PID returns containerd's process id, for resource statistics.
func (r *Runtime) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running.pid
}

// prepare creates folders, programs and configuration.
func prepare(ctx context.Context, config Config) (*Runtime, error) {
	for _, dir := range []string{config.RunDir, config.root(), config.CNIConfDir, config.RegistryDir, config.shimSocketDir()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	lockFile, err := lock(ctx, config.RunDir)
	if err != nil {
		return nil, fmt.Errorf("another knarr uses %s: %w", config.RunDir, err)
	}
	for _, dir := range []string{config.state(), config.runcState()} {
		err := os.MkdirAll(dir, 0o711)
		if err == nil {
			err = keepInMemory(dir)
		}
		if err != nil {
			config.Logger.Warn("cannot keep the state of containers in memory; it is on disk, which is slower", "dir", dir, "cause", err)
		}
	}
	runtime := &Runtime{Socket: config.socket(), config: config, lockFile: lockFile, stopped: make(chan struct{})}
	if err := runtime.writeFiles(); err != nil {
		lockFile.Close()
		return nil, err
	}
	return runtime, nil
}

func (r *Runtime) writeFiles() error {
	programs, err := Unpack(r.config.binDir())
	if err != nil {
		return err
	}
	version, err := os.Readlink(programs)
	if err != nil {
		return err
	}
	r.programs = programs
	r.program = filepath.Join(programs, "containerd")
	r.Snapshotter = r.config.Snapshotter
	if r.Snapshotter == "" {
		var reason error
		if r.Snapshotter, reason = chooseSnapshotter(r.config.root()); reason != nil {
			r.config.Logger.Warn("overlayfs does not work here: images are unpacked as whole copies, which costs disk space and time; "+
				"put the data folder on ext4 or xfs to avoid it", "dataDir", r.config.DataDir, "cause", reason)
		}
	}
	restrict := !hasCapability(unix.CAP_SYS_RESOURCE)
	if restrict {
		r.config.Logger.Info("this process may not lower OOM scores (CAP_SYS_RESOURCE is missing): containers keep at least knarr's own score")
	}
	text := r.config.containerdConfig(r.Snapshotter, restrict)
	r.configFile = r.config.configFile()
	if err := os.WriteFile(r.configFile, []byte(text), 0o600); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(version + "\n" + text))
	r.fingerprint = hex.EncodeToString(sum[:])
	return r.config.writeMirrors()
}

// startProcess adopts or spawns containerd and waits until its socket accepts connections.
func (r *Runtime) startProcess(ctx context.Context) error {
	running, same, err := adopt(r.config.RunDir, r.fingerprint)
	if err != nil {
		return err
	}
	adopted := 0
	if running != nil {
		adopted = running.pid
	}
	if err := stopStrays(r.config, adopted); err != nil {
		return err
	}
	if running != nil && same && answers(r.Socket, running.pid) {
		r.setRunning(running)
		return nil
	}
	if running != nil {
		r.config.Logger.Info("replacing the running containerd: its version or configuration differs, or it does not answer", "pid", running.pid)
		running.stop(stopTimeout)
	}
	r.trimLog()
	r.lost = findLeftovers(r.config)
	if running, err = spawn(r.config, r.program, r.configFile, r.fingerprint); err != nil {
		return err
	}
	r.setRunning(running)
	if err := r.waitReady(ctx, running); err != nil {
		running.stop(stopTimeout)
		return err
	}
	return nil
}

// waitReady waits until containerd accepts connections, which happens after it has loaded all
// plugins.
func (r *Runtime) waitReady(ctx context.Context, running *process) error {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for !answers(r.Socket, running.pid) {
		select {
		case <-running.exited:
			return fmt.Errorf("containerd ended at once; the end of %s: %s", r.config.logFile(), r.logTail())
		case <-deadline.C:
			return fmt.Errorf("containerd did not answer within %v; see %s", startTimeout, r.config.logFile())
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// supervise restarts containerd with backoff when it dies, and stops it when ctx ends.
func (r *Runtime) supervise(ctx context.Context) {
	defer close(r.stopped)
	defer r.lockFile.Close()
	defer r.sweeping.Wait()
	backoff := firstBackoff
	started := time.Now()
	trim := time.NewTicker(time.Minute)
	defer trim.Stop()
	for {
		select {
		case <-ctx.Done():
			r.Services.Close(context.WithoutCancel(ctx))
			r.current().stop(stopTimeout)
			return
		case <-trim.C:
			r.trimLog()
			continue
		case <-r.current().exited:
		}
		if ctx.Err() != nil {
			continue
		}
		if time.Since(started) > healthyAfter {
			backoff = firstBackoff
		}
		r.config.Logger.Error("containerd ended; containers keep running, starting it again", "after", backoff, "log", r.logTail())
		select {
		case <-ctx.Done():
			continue
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
		started = time.Now()
		if err := r.startProcess(ctx); err == nil {
			r.sweepLater(ctx)
		} else if ctx.Err() == nil {
			r.config.Logger.Error("cannot start containerd", "error", err)
		}
	}
}

// Program returns the content of one of the included programs.
func (r *Runtime) Program(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.programs, name))
}

func (r *Runtime) current() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

func (r *Runtime) setRunning(running *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = running
}

// trimLog keeps one older log. containerd appends to the open file, so the file is copied and
// truncated instead of renamed.
func (r *Runtime) trimLog() {
	path := r.config.logFile()
	info, err := os.Stat(path)
	if err != nil || info.Size() < maxLogSize {
		return
	}
	err = func() error {
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		defer from.Close()
		to, err := os.Create(path + ".1")
		if err != nil {
			return err
		}
		defer to.Close()
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
		return os.Truncate(path, 0)
	}()
	if err != nil {
		r.config.Logger.Warn("cannot trim containerd's log", "error", err)
	}
}

// logTail returns the end of containerd's log, for error messages.
func (r *Runtime) logTail() string {
	file, err := os.Open(r.config.logFile())
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if _, err := file.Seek(-1000, io.SeekEnd); err != nil && !errors.Is(err, unix.EINVAL) {
		return err.Error()
	}
	tail, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	return string(tail)
}

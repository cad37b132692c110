package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/failpoint"
)

// process is a running containerd: a child, or one that an earlier knarr left running.
type process struct {
	pid    int
	exited chan struct{} // closed when the process has ended
}

// record identifies a running containerd across restarts of knarr. The start time excludes another
// process with a reused pid.
type record struct {
	PID         int    `json:"pid"`
	StartTime   string `json:"startTime"`
	Fingerprint string `json:"fingerprint"` // hash of the programs and the configuration
}

// beforeRecord is a point of failure for tests: knarr is killed with an unrecorded containerd.
var beforeRecord = func() { failpoint.Here("containerd-started") }

func recordPath(runDir string) string { return filepath.Join(runDir, "containerd.json") }

// spawn starts containerd in its own process group and writes its record. The output goes to a
// file. A pipe would break when knarr is killed, and that would end containerd.
func spawn(config Config, program, configFile, fingerprint string) (*process, error) {
	if err := os.MkdirAll(filepath.Dir(config.logFile()), 0o755); err != nil {
		return nil, err
	}
	output, err := os.OpenFile(config.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	command := exec.Command(program, "--config", configFile, "--log-level", "warn")
	command.Stdout, command.Stderr = output, output
	command.Dir = "/"
	command.Env = environment(filepath.Dir(program), config.MemoryLimit)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	running := &process{pid: command.Process.Pid, exited: make(chan struct{})}
	go func() {
		_ = command.Wait() // its log contains the reason
		close(running.exited)
	}()
	beforeRecord()
	started, err := startTime(running.pid)
	if err == nil {
		err = writeRecord(config.RunDir, record{PID: running.pid, StartTime: started, Fingerprint: fingerprint})
	}
	if err != nil {
		running.stop(time.Second)
		return nil, err
	}
	return running, nil
}

// environment returns the variables for containerd. The included programs come first in PATH, where
// containerd finds its shim and the shim finds runc. The limit keeps the heap small under load.
func environment(programs string, memoryLimit int64) []string {
	var env []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		switch name {
		case "PATH", "GOGC", "GOMEMLIMIT", "NOTIFY_SOCKET":
		default:
			env = append(env, variable)
		}
	}
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return append(env, "PATH="+programs+":"+path, "GOGC=100", "GOMEMLIMIT="+strconv.FormatInt(memoryLimit, 10))
}

// adopt returns the recorded containerd if it still runs, and whether it has this fingerprint.
func adopt(runDir, fingerprint string) (running *process, same bool, err error) {
	content, err := os.ReadFile(recordPath(runDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var known record
	if json.Unmarshal(content, &known) != nil {
		return nil, false, nil // truncated by a crash of the machine, so no containerd runs
	}
	pidfd, err := unix.PidfdOpen(known.PID, 0)
	if err != nil {
		return nil, false, nil
	}
	if started, err := startTime(known.PID); err != nil || started != known.StartTime {
		unix.Close(pidfd)
		return nil, false, nil
	}
	running = &process{pid: known.PID, exited: make(chan struct{})}
	go func() {
		defer close(running.exited)
		defer unix.Close(pidfd)
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return running, known.Fingerprint == fingerprint, nil
}

// stop stops containerd with SIGTERM, and with SIGKILL after timeout. Shims and containers keep
// running.
func (p *process) stop(timeout time.Duration) {
	if p.gone() {
		return // another process may have the pid now
	}
	_ = syscall.Kill(p.pid, syscall.SIGTERM)
	select {
	case <-p.exited:
		return
	case <-time.After(timeout):
	}
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	<-p.exited
}

// gone reports whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func writeRecord(runDir string, current record) error {
	content, err := json.Marshal(current)
	if err != nil {
		return err
	}
	temporary := recordPath(runDir) + ".tmp"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, recordPath(runDir))
}

// startTime returns field 22 of /proc/PID/stat, in clock ticks since boot, together with the boot's
// id. With the pid it identifies a process forever.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat: cannot read %q", pid, stat)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + " " + fields[19], nil
}

// lock keeps two knarr processes from supervising the same containerd. Closing the file releases
// it, so a crash does too.
func lock(ctx context.Context, runDir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(runDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	// An earlier knarr may be about to end.
	waiting, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		select {
		case <-waiting.Done():
			file.Close()
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A machine is a computer of the judge: namespaces with a process 1, a folder for its disk, a
// cgroup, and one knarr.
type machine struct {
	name    string
	address string
	disk    string // outlives a power failure
	cgroup  string
	log     string

	lan   *space
	port  int // number of its next port in the LAN
	space *space
	knarr *exec.Cmd
	ended chan struct{}
}

// A space is a set of namespaces. They end with its process.
type space struct {
	cmd   *exec.Cmd
	pid   int
	kinds []string
}

// newSpace creates namespaces; script runs in them before the space is used, and may refer to $1.
func newSpace(script, arg string, kinds ...string) (*space, error) {
	s := &space{kinds: kinds}
	made := filepath.Join(os.TempDir(), fmt.Sprintf("made-%d-%d", os.Getpid(), time.Now().UnixNano()))
	defer os.Remove(made)
	keep := "exec sleep infinity"
	if slices.Contains(kinds, "--pid") {
		// The shell reaps what loses its parent. Its child ends with the namespace.
		keep = "trap '' INT HUP\nwhile :; do sleep 3600 & wait; done"
	}
	keeper := "set -e\n" + script + "\n: >\"$2\"\nset +e\n" + keep
	args := append(append([]string{"--fork", "--kill-child"}, kinds...), "bash", "-c", keeper, "space", arg, made)
	s.cmd = exec.Command("unshare", args...)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	err := eventually(20*time.Second, "new namespaces", func() error {
		_, err := os.Stat(made)
		return err
	})
	if err == nil {
		var child []byte
		child, err = os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", s.cmd.Process.Pid))
		if err == nil {
			s.pid, err = strconv.Atoi(strings.TrimSpace(string(child)))
		}
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *space) command(name string, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(s.pid)}
	for _, kind := range s.kinds {
		if kind != "--mount-proc" {
			enter = append(enter, kind)
		}
	}
	return exec.Command("nsenter", append(append(enter, "--", name), args...)...)
}

func (s *space) run(line string) error {
	words := strings.Fields(line)
	if out, err := s.command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

// end kills everything in the space.
func (s *space) end() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// boot gives the machine its namespaces and plugs it in. Its memory is empty, and its disk is as it
// was.
func (m *machine) boot() (err error) {
	const script = `
mount --make-rshared /
hostname "${1##*/}"
ip link set lo up
mount -t tmpfs tmpfs /run
for dir in log lib/kubelet; do
  mkdir -p "$1/var/$dir" "/var/$dir"
  mount --bind "$1/var/$dir" "/var/$dir"
done`
	if err := os.MkdirAll(m.disk, 0o755); err != nil {
		return err
	}
	m.space, err = newSpace(script, m.disk, "--net", "--uts", "--mount", "--pid", "--mount-proc")
	if err != nil {
		return err
	}
	// A new name, since the link of a machine without power disappears with a delay.
	m.port++
	port := fmt.Sprintf("%s-%d", m.name, m.port)
	if err := m.lan.run(fmt.Sprintf("ip link add %s type veth peer name uplink netns %d", port, m.space.pid)); err != nil {
		return err
	}
	return errors.Join(m.lan.run("ip link set "+port+" master lan up"), m.space.run("ip addr add "+m.address+"/24 dev uplink"), m.space.run("ip link set uplink up"))
}

func (m *machine) data() string { return filepath.Join(m.disk, "knarr") }

// start runs a command of knarr in the foreground, and waits until it says ready.
func (m *machine) start(command string, flags ...string) error {
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Seek(0, 2)
	if err != nil {
		return err
	}
	args := append([]string{command, "--data-dir", m.data(), "--node-name", m.name, "--cgroup-root", m.cgroup, "--advertise-address", m.address,
		// A nearly full disk must not cause evictions or the removal of images.
		"--eviction-hard", "memory.available<100Mi", "--image-gc-high-threshold", "100"}, flags...)
	cmd, ended := m.space.command(knarr, args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	m.knarr, m.ended = cmd, ended
	go func() { _ = cmd.Wait(); close(ended) }()
	return eventually(90*time.Second, "knarr "+command+" on "+m.name, func() error {
		text, err := os.ReadFile(m.log)
		if err != nil {
			return err
		}
		if bytes.Contains(text[before:], []byte("ready in")) {
			return nil
		}
		return fmt.Errorf("not ready; see %s", m.log)
	})
}

// tool runs a command of knarr that is about the machine's data folder.
func (m *machine) tool(args ...string) (string, error) {
	var complaint bytes.Buffer
	cmd := m.space.command(knarr, append(args, "--data-dir", m.data())...)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("knarr %s on %s: %w: %s", args[0], m.name, err, complaint.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// cut cuts the power: all processes end at once.
func (m *machine) cut() error {
	if err := syscall.Kill(m.space.pid, syscall.SIGKILL); err != nil {
		return err
	}
	m.space.end()
	<-m.ended
	m.knarr, m.space = nil, nil
	return nil
}

// stop stops knarr, removes everything that it has left, and the namespaces.
func (m *machine) stop() (err error) {
	enter := func(name string, args ...string) *exec.Cmd {
		return exec.Command("unshare", append([]string{"--net", name}, args...)...)
	}
	if m.space != nil {
		defer m.space.end()
		enter = m.space.command
	}
	if m.knarr != nil {
		// nsenter waits for knarr, and signals are for knarr itself.
		child, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", m.knarr.Process.Pid))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(child))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
		select {
		case <-m.ended:
		case <-time.After(time.Minute):
			err = fmt.Errorf("knarr on %s did not stop within a minute", m.name)
		}
	}
	if out, purgeErr := enter(knarr, "purge", "--yes", "--data-dir", m.data(), "--cgroup-root", m.cgroup).CombinedOutput(); purgeErr != nil {
		err = errors.Join(err, fmt.Errorf("purge of %s: %w: %s", m.name, purgeErr, out))
	}
	return err
}

// all runs a function for several machines at a time.
func all(machines []*machine, do func(*machine) error) error {
	errs := make([]error, len(machines))
	var wait sync.WaitGroup
	for i, m := range machines {
		wait.Go(func() { errs[i] = do(m) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// left returns what the judge has left on this machine.
func left(state, cgroup string) error {
	var errs []error
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && bytes.Contains(mounts, []byte(state+"/")) {
		errs = append(errs, fmt.Errorf("mounts are left below %s", state))
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*" + cgroup + "-*", "/sys/fs/cgroup" + cgroup + "-*"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			errs = append(errs, fmt.Errorf("cgroups are left: %v", found))
		}
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if backing, err := os.ReadFile(file); err == nil && bytes.HasPrefix(backing, []byte(state+"/")) {
			errs = append(errs, fmt.Errorf("a loop device is left: %s", bytes.TrimSpace(backing)))
		}
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if text, err := os.ReadFile(line); err == nil && bytes.Contains(text, []byte(state+"/")) {
			errs = append(errs, fmt.Errorf("process %s is left: %s", filepath.Base(filepath.Dir(line)), bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
		}
	}
	if err := os.RemoveAll(state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// eventually repeats a check until it succeeds. The time only bounds a hang.
func eventually(limit time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-stopped:
			return errors.New("interrupted")
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not after %v: %w", what, limit, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

package e2e

import (
	"bytes"
	"cmp"
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
	"testing"
	"time"
)

// machine is one computer of a test. It has its own network namespace, sometimes more namespaces, a
// data folder, and at most one knarr. It is always purged when the test ends, and nothing of it may
// be left.
type machine struct {
	t            *testing.T
	name         string   // of its node
	dir          string   // data folder
	space        *space   // its namespaces
	kinds        []string // options of unshare for namespaces besides the network
	knarrProgram string   // another build than bin/knarr, or empty
	knarrEnv     []string // its environment in addition to the test's
	// withoutAnyDisk starts knarr without anyDisk, whose flags an old one does not have.
	withoutAnyDisk bool
	cmd            *exec.Cmd // knarr
	log            *output
	done           chan struct{}
}

func newMachine(t *testing.T, name string, kinds ...string) *machine {
	t.Helper()
	needs(t)
	dir, err := os.MkdirTemp("", "knarr-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, name: name, dir: filepath.Join(dir, "data"), log: &output{}, kinds: kinds}
	m.boot()
	t.Cleanup(func() {
		m.stop(syscall.SIGTERM)
		m.purge()
		if t.Failed() {
			t.Logf("output of knarr on %s:\n%s", name, tail(m.log.String(), 60))
		}
		m.checkNothingLeft()
		m.unplug()
		_ = os.RemoveAll(dir)
	})
	return m
}

// anyDisk keeps a node from evicting pods and removing images on a machine with a nearly full disk.
var anyDisk = []string{"--eviction-hard", "memory.available<100Mi", "--image-gc-high-threshold", "100"}

// needs skips the test if the machine cannot run it.
func needs(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("needs make build: ", err)
	}
}

// boot gives the machine an empty network.
func (m *machine) boot() {
	m.t.Helper()
	m.space = newSpace(m.t, append([]string{"--net"}, m.kinds...)...)
	m.ip("link set lo up")
}

// unplug removes the machine's network.
func (m *machine) unplug() { m.space.end() }

// crash kills everything that runs on the machine at once, like a power failure, and boots it
// again.
func (m *machine) crash() {
	m.t.Helper()
	m.stop(syscall.SIGKILL)
	for deadline := time.Now().Add(time.Minute); ; {
		pids := m.processes()
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("processes %v survive", pids)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
	m.unplug()
	m.boot()
}

// processes returns all processes that the machine's knarr has started: those in its cgroups, or
// with its folder on their command line.
func (m *machine) processes() []int {
	var found []int
	for _, top := range m.cgroups() {
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "cgroup.procs" {
				data, _ := os.ReadFile(path)
				for _, pid := range strings.Fields(string(data)) {
					if n, err := strconv.Atoi(pid); err == nil {
						found = append(found, n)
					}
				}
			}
			return nil
		})
	}
	out, _ := exec.Command("pgrep", "-f", m.dir).Output()
	for _, pid := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(pid); err == nil {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (m *machine) cgroup() string {
	return fmt.Sprintf("/knarr-e2e-%d-%s", os.Getpid(), filepath.Base(filepath.Dir(m.dir)))
}

// cgroups returns the machine's existing cgroups on the first level.
func (m *machine) cgroups() []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*" + m.cgroup())
	more, _ := filepath.Glob("/sys/fs/cgroup" + m.cgroup())
	return append(found, more...)
}

// start runs a command of knarr in the foreground, and waits until it says ready.
func (m *machine) start(command string, flags ...string) {
	m.t.Helper()
	args := append([]string{command, "--data-dir", m.dir}, flags...)
	if command != "server" {
		args = append(args, "--node-name", m.name, "--cgroup-root", m.cgroup())
		if !m.withoutAnyDisk {
			args = append(args, anyDisk...)
		}
	}
	m.cmd, m.done = m.inside(cmp.Or(m.knarrProgram, binary), args...), make(chan struct{})
	m.cmd.Env = append(os.Environ(), m.knarrEnv...)
	ready := m.log.await("ready in")
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { _ = m.cmd.Wait(); close(m.done) }()
	select {
	case <-ready:
	case <-m.done:
		m.t.Fatalf("knarr %s ended:\n%s", command, m.log)
	case <-time.After(60 * time.Second):
		m.t.Fatalf("knarr %s is not ready after 60 s:\n%s", command, m.log)
	}
}

func (m *machine) stop(signal syscall.Signal) {
	if m.cmd == nil {
		return
	}
	m.space.signal(m.cmd, signal)
	select {
	case <-m.done:
	case <-time.After(time.Minute):
		m.space.signal(m.cmd, syscall.SIGKILL)
		<-m.done
		m.t.Error("knarr did not stop within a minute of a signal")
	}
	m.cmd = nil
}

func (m *machine) purge() {
	out, err := m.inside(binary, "purge", "--yes", "--data-dir", m.dir, "--cgroup-root", m.cgroup()).CombinedOutput()
	if err != nil {
		m.t.Errorf("purge: %v\n%s", err, out)
	}
}

// checkNothingLeft fails the test if a purge has left processes, mounts, cgroups, files or links.
func (m *machine) checkNothingLeft() {
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && strings.Contains(string(mounts), m.dir) {
		m.t.Errorf("mounts are left below %s", m.dir)
	}
	if _, err := os.Stat(m.dir); !errors.Is(err, fs.ErrNotExist) {
		m.t.Errorf("the data folder %s is left", m.dir)
	}
	if found := m.cgroups(); len(found) > 0 {
		m.t.Errorf("cgroups are left: %v", found)
	}
	if out, _ := exec.Command("pgrep", "-fa", m.dir).Output(); len(out) > 0 {
		m.t.Errorf("processes are left:\n%s", out)
	}
	links, err := m.inside("ip", "-o", "link").Output()
	if err != nil || strings.Contains(string(links), "knarr") {
		m.t.Errorf("links are left: %v\n%s", err, links)
	}
}

// inside returns a command that runs on the machine.
func (m *machine) inside(name string, args ...string) *exec.Cmd {
	return m.space.command(name, args...)
}

// ip runs the ip command on the machine.
func (m *machine) ip(args string) { m.t.Helper(); m.space.ip(m.t, args) }

// output collects the output of a program. Safe for concurrent use.
type output struct {
	mu     sync.Mutex
	text   bytes.Buffer
	wanted string
	from   int
	found  chan struct{}
}

// await returns a channel that is closed when the program prints text from now on.
func (o *output) await(text string) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wanted, o.from, o.found = text, o.text.Len(), make(chan struct{})
	return o.found
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(p)
	if o.wanted != "" && strings.Contains(o.text.String()[o.from:], o.wanted) {
		o.wanted = ""
		close(o.found)
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// commandLine returns a process's program and arguments; "" if it is gone.
func commandLine(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
}

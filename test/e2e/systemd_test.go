package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bootSystemd is the first program of a machine with systemd: it mounts the cgroups of the
// namespace and a folder of units with almost nothing, and becomes systemd. $1 is systemd's path.
const bootSystemd = `set -e
mount --make-rprivate /
mount -t proc proc /proc
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  mkdir /sys/fs/cgroup/systemd /sys/fs/cgroup/unified
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
  mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
  sed -n 's/^[0-9]*:\([a-z_,]*\):.*/\1/p' /proc/self/cgroup | while read -r c; do
    [ -z "$c" ] || { mkdir "/sys/fs/cgroup/$c"; mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c"; }
  done
fi
for dir in /run /etc/systemd/system "${1%/*}/system" "${1%/*}/system-generators"; do
  [ ! -d "$dir" ] || mount -t tmpfs -o mode=755 tmpfs "$dir"
done
for unit in base sysinit basic multi-user shutdown network network-online; do
  printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $unit > "${1%/*}/system/$unit.target"
done
ip link set lo up
ip link add uplink type veth peer name switch
ip addr add 192.168.88.1/24 dev uplink
ip link set uplink up
ip link set switch up
export container=other
exec "$1" --system --unit=base.target --log-target=console --show-status=no
`

// systemd is a machine whose process 1 is systemd, with cgroups and namespaces of its own.
type systemd struct {
	t      *testing.T
	dir    string // data folder
	cgroup string // its name in each hierarchy
	cmd    *exec.Cmd
	pid    int // of process 1
	log    *output
}

// newSystemd boots systemd.
func newSystemd(t *testing.T) *systemd {
	t.Helper()
	needs(t)
	program := ""
	for _, path := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if _, err := os.Stat(path); err == nil {
			program = path
			break
		}
	}
	if _, err := exec.LookPath("systemctl"); program == "" || err != nil {
		t.Skip("needs systemd")
	}
	dir, err := os.MkdirTemp("", "knarr-systemd-")
	if err != nil {
		t.Fatal(err)
	}
	s := &systemd{t: t, dir: filepath.Join(dir, "data"), cgroup: filepath.Base(dir), log: &output{}}
	t.Cleanup(func() {
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("output of systemd:\n%s", tail(s.log.String(), 60))
		}
		s.removeCgroups()
		_ = os.RemoveAll(dir)
	})
	for _, h := range hierarchies() {
		group := filepath.Join(h, s.cgroup)
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Fatal(err)
		}
		// In version 1 a new group has none.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(h, file)); err == nil {
				_ = os.WriteFile(filepath.Join(group, file), value, 0)
			}
		}
	}
	enter := ""
	for _, h := range hierarchies() {
		enter += fmt.Sprintf("echo $$ > %s/%s/cgroup.procs || exit 1\n", h, s.cgroup)
	}
	s.cmd = exec.Command("bash", "-c", enter+`exec unshare --cgroup --mount --pid --net --ipc --uts --fork --kill-child bash -c "$1" boot "$2"`, "enter", bootSystemd, program)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := startTied(s.cmd); err != nil {
		t.Fatal(err)
	}
	s.eventually("systemd answers", func() error {
		child, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", s.cmd.Process.Pid))
		if _, err := fmt.Sscan(string(child), &s.pid); err != nil {
			return fmt.Errorf("unshare has no child: %w", err)
		}
		out, err := s.inside("systemctl", "list-units").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return s
}

// hierarchies returns the mount points of cgroups, in version 1 one for each controller.
func hierarchies() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	files, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	var dirs []string
	for _, file := range files {
		if dir := filepath.Dir(file); !slices.ContainsFunc(dirs, func(other string) bool { return sameFile(dir, other) }) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func sameFile(one, other string) bool {
	a, err := os.Stat(one)
	b, err2 := os.Stat(other)
	return err == nil && err2 == nil && os.SameFile(a, b)
}

// removeCgroups removes the machine's cgroups, which works once all of its processes are gone.
func (s *systemd) removeCgroups() {
	s.eventually("the machine's cgroups are gone", func() error {
		var left error
		for _, h := range hierarchies() {
			var dirs []string
			_ = filepath.WalkDir(filepath.Join(h, s.cgroup), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				if err := syscall.Rmdir(dir); err != nil && err != syscall.ENOENT {
					left = fmt.Errorf("%s: %w", dir, err)
				}
			}
		}
		return left
	})
}

func (s *systemd) inside(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--target", fmt.Sprint(s.pid), "--cgroup", "--mount", "--pid", "--net", "--ipc", "--uts", "--", name}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.dir, "kubeconfig"))
	return cmd
}

// run runs a command, which must succeed.
func (s *systemd) run(name string, args ...string) string {
	s.t.Helper()
	out, err := s.inside(name, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *systemd) eventually(what string, fn func() error) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: %v", what, err)
		}
	}
}

// state returns the pod's processes with their ids, and what the API says of its container.
func (s *systemd) state() string {
	s.t.Helper()
	return s.run("pgrep", "-x", "-a", "sailor|pause") + s.run("pgrep", "-f", "containerd-shim-runc-v2 -namespace") +
		s.run(binary, "kubectl", "get", "pod", "sailor", "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount} {.status.podIP}")
}

// main returns the process id of the service, once it is active and not the earlier one.
func (s *systemd) main(earlier string) string {
	s.t.Helper()
	var pid string
	s.eventually("the service is active", func() error {
		out := s.run("systemctl", "show", "knarr", "--property=MainPID,ActiveState")
		_, pid, _ = strings.Cut(out, "MainPID=")
		pid, _, _ = strings.Cut(pid, "\n")
		if !strings.Contains(out, "ActiveState=active") || pid == earlier || pid == "0" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	return pid
}

// TestARestartOfTheServiceKeepsContainers installs knarr on a machine with systemd. A restart, a
// kill and a stop of the service end knarr, and no process of a pod.
func TestARestartOfTheServiceKeepsContainers(t *testing.T) {
	t.Parallel()
	s := newSystemd(t)
	s.run(binary, append([]string{"install", "--data-dir", s.dir, "--node-name", "one"}, anyDisk...)...)
	program := (&cluster{&machine{t: t}}).buildProgram("./sailor")
	s.run(binary, "image", "build", "--data-dir", s.dir, "--tag", "test/sailor:v1", program)
	s.run(binary, "kubectl", "run", "sailor", "--image=test/sailor:v1")
	s.run(binary, "kubectl", "wait", "--for=condition=Ready", "pod/sailor", "--timeout=60s")
	before, pid := s.state(), s.main("")
	for _, change := range [][]string{
		{"restart", "knarr"}, {"restart", "knarr"}, {"kill", "--signal=KILL", "--kill-whom=main", "knarr"},
	} {
		s.run("systemctl", change...)
		pid = s.main(pid)
		s.eventually("the API answers", func() error { return s.inside(binary, "kubectl", "get", "--raw", "/readyz").Run() })
		s.run(binary, "kubectl", "wait", "--for=condition=Ready", "pod/sailor", "--timeout=60s")
		if after := s.state(); after != before {
			t.Errorf("after systemctl %s:\n%s\nbefore:\n%s", change[0], after, before)
		}
	}
	s.run("systemctl", "stop", "knarr")
	if left := s.run("pgrep", "-x", "-a", "sailor|pause"); !strings.HasPrefix(before, left) {
		t.Errorf("after systemctl stop:\n%s\nbefore:\n%s", left, before)
	}
	s.run(binary, "uninstall")
	s.run(binary, "purge", "--yes", "--data-dir", s.dir)
	if out, err := s.inside("pgrep", "-a", "sailor|pause|containerd|knarr").CombinedOutput(); err == nil {
		t.Errorf("after a purge there are processes:\n%s", out)
	}
}

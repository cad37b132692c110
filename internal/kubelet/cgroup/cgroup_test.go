package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// newManager makes cgroups below a root of the test's own, and removes them at the end.
func newManager(t *testing.T, all Limits) *Manager {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups are made by root")
	}
	m := &Manager{Root: fmt.Sprintf("/knarr-test-cgroup-%d", os.Getpid()), All: all}
	if err := m.EnforcePods(); err != nil {
		t.Skipf("this machine does not let cgroups be made: %v", err)
	}
	t.Cleanup(func() {
		for _, dir := range m.dirs(m.Root) {
			if err := removeTree(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return m
}

func aPod(uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
}

// inside returns a shell command that first enters the pod's cgroup.
func inside(t *testing.T, m *Manager, pod *corev1.Pod, script string) *exec.Cmd {
	t.Helper()
	if _, err := m.Ensure(pod); err != nil {
		t.Fatal(err)
	}
	enter := ""
	for _, dir := range m.Dirs(corev1.PodQOSBestEffort, pod.UID) {
		enter += "echo $$ > " + filepath.Join(dir, "cgroup.procs") + " || exit 99\n"
	}
	return exec.Command("sh", "-c", enter+script)
}

func TestAForkBombHitsTheLimitOfAllPods(t *testing.T) {
	m := newManager(t, Limits{PIDs: 20})
	out, _ := inside(t, m, aPod("bomb"), "i=0; while [ $i -lt 60 ]; do sleep 30 >/dev/null 2>&1 & i=$((i+1)); done; echo survived").CombinedOutput()
	if text := string(out); strings.Contains(text, "survived") && !strings.Contains(text, "ork") {
		t.Errorf("60 processes started under a limit of 20: %s", text)
	}
	if err := exec.Command("true").Run(); err != nil {
		t.Errorf("a process outside of pods cannot start: %v", err)
	}
	if err := m.Remove("bomb"); err != nil {
		t.Errorf("the leftover processes keep the cgroup: %v", err)
	}
}

func TestAMemoryHogHitsTheLimitOfAllPods(t *testing.T) {
	m := newManager(t, Limits{Memory: 48 << 20})
	err := inside(t, m, aPod("hog"), "head -c 200000000 /dev/zero | tail -c 190000000 > /dev/null; exit $?").Run()
	if err == nil {
		t.Error("200 MB were used under a limit of 48 MiB")
	}
	if err := m.Remove("hog"); err != nil {
		t.Error(err)
	}
}

func TestAPodHasItsOwnLimitOfProcesses(t *testing.T) {
	m := newManager(t, Limits{})
	m.PodPIDs = 7
	if _, err := m.Ensure(aPod("few")); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, dir := range m.Dirs(corev1.PodQOSBestEffort, "few") {
		if data, err := os.ReadFile(filepath.Join(dir, "pids.max")); err == nil {
			found = true
			if got := strings.TrimSpace(string(data)); got != "7" {
				t.Errorf("pids.max is %s", got)
			}
		}
	}
	if !found {
		t.Skip("this machine has no pids controller")
	}
}

func TestACgroupWithProcessesIsRemoved(t *testing.T) {
	m := newManager(t, Limits{})
	pod := aPod("leftover")
	cmd := inside(t, m, pod, "exec sleep 600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for len(m.processes("leftover")) == 0 {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
	}
	if err := m.Remove("leftover"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the leftover process was not killed")
	}
	if got := m.Pods(); len(got) != 0 {
		t.Errorf("cgroups of pods %v are left", got)
	}
}

// processes reads the ids of a best-effort pod's processes.
func (m *Manager) processes(uid types.UID) (ids []string) {
	for _, dir := range m.Dirs(corev1.PodQOSBestEffort, uid) {
		data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		ids = append(ids, strings.Fields(string(data))...)
	}
	return ids
}

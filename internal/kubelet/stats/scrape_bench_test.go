package stats

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// makeCgroup makes a cgroup in all hierarchies, and removes it when the benchmark ends.
func makeCgroup(b *testing.B, cgroup string) {
	b.Helper()
	tops := []string{mountRoot}
	if !cgroups.IsCgroup2UnifiedMode() {
		tops = nil
		for _, name := range controllers {
			tops = append(tops, filepath.Join(mountRoot, name))
		}
	}
	for _, top := range tops {
		dir := filepath.Join(top, cgroup)
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = os.Remove(dir) })
	}
}

// BenchmarkCadvisorOf110Pods measures a scrape of /metrics/cadvisor of a full node: 110 pods with a
// sandbox and a container each.
func BenchmarkCadvisorOf110Pods(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root, to make cgroups")
	}
	top := fmt.Sprintf("/knarr-bench-%d", os.Getpid())
	makeCgroup(b, top)
	var pods []*corev1.Pod
	for i := range 110 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Namespace: "default", UID: types.UID(fmt.Sprintf("6d2f9f1e-3c55-4a35-9d4e-%012d", i))}}
		container := fmt.Sprintf("%064d", i)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", ContainerID: "containerd://" + container, Image: "registry.example.com/team/image:v1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
		pods = append(pods, p)
		pod := path.Join(top, "pod"+string(p.UID))
		makeCgroup(b, pod)
		for _, id := range []string{container, fmt.Sprintf("%064d", 1000+i)} {
			makeCgroup(b, path.Join(pod, id))
			run := exec.Command("sleep", "infinity")
			run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := run.Start(); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				_ = run.Process.Kill()
				_ = run.Wait()
			})
			if err := os.WriteFile(filepath.Join(folder(path.Join(pod, id)), "cgroup.procs"), []byte(strconv.Itoa(run.Process.Pid)), 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	c := New(Config{
		Runtime: quietRuntime{}, Images: noImages{}, RootDir: b.TempDir(), LogsDir: b.TempDir(), Now: time.Now, Pods: func() []*corev1.Pod { return pods },
		Groups: func(p *corev1.Pod) string {
			if p == nil {
				return top
			}
			return path.Join(top, "pod"+string(p.UID))
		},
	})
	defer c.disk.cancel()
	for _, coding := range []string{"identity", "gzip"} {
		b.Run(coding, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil)
			r.Header.Set("Accept-Encoding", coding)
			size := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				c.ServeCadvisor(w, r)
				size = w.Body.Len()
			}
			b.ReportMetric(float64(size), "bytes/scrape")
		})
	}
}

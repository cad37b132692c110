package kubelet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/fake"
)

func TestAStaticPodSurvivesARestartOfTheNodeAgent(t *testing.T) {
	dir := t.TempDir()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: i:1}\n"
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(b *bench) { b.cfg.Settings.StaticPodPath = dir })
	before := b.await("web-node", "ready", ready)
	b.stop()
	b.start()
	b.create(pod("later")) // when it is ready, the node agent has dealt with what it found
	b.await("later", "ready", ready)
	after := b.await("web-node", "ready", ready)
	if a, c := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; a.ContainerID != c.ContainerID || c.RestartCount != 0 {
		t.Errorf("container was %s, is %s with %d restarts; calls %q", a.ContainerID, c.ContainerID, c.RestartCount, b.cri.Log())
	}
}

func TestTheFolderOfARemovedPodGoesAtTheNextStart(t *testing.T) {
	b := newBench(t, func(b *bench) {
		// The folder is never old enough for the housekeeping that runs later.
		b.cfg.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	})
	b.create(pod("one"))
	one := b.await("one", "ready", ready)
	b.stop()
	left := filepath.Join(b.cfg.RootDir, "pods", "00000000-dead-4000-8000-000000000000")
	if err := os.MkdirAll(filepath.Join(left, "volumes", "kubernetes.io~empty-dir", "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.start()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(left); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the folder is still there")
		}
	}
	if _, err := os.Stat(filepath.Join(b.cfg.RootDir, "pods", string(one.UID))); err != nil {
		t.Errorf("the folder of a pod that runs: %v", err)
	}
}

// TestAnInterruptedStartDoesNotFailAPod: containerd gives up the start of a container when the node
// agent is killed meanwhile, and shows the container as ended.
func TestAnInterruptedStartDoesNotFailAPod(t *testing.T) {
	broken := true
	b := newBench(t, func(b *bench) {
		b.cri.Behave = func(*runtimeapi.ContainerConfig) fake.Behavior {
			if broken {
				return fake.Behavior{StartErr: errors.New("context canceled")}
			}
			return fake.Behavior{}
		}
	})
	b.stop()
	one := b.create(pod("one", never))
	labels := map[string]string{
		"io.kubernetes.pod.name": one.Name, "io.kubernetes.pod.namespace": one.Namespace, "io.kubernetes.pod.uid": string(one.UID),
		"io.kubernetes.container.name": "main",
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: one.Name, Namespace: one.Namespace, Uid: string(one.UID)}, Labels: labels,
	}
	sandbox, err := b.cri.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := b.cri.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "image"}, Labels: labels,
	}, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cri.StartContainer(t.Context(), id); err == nil {
		t.Fatal("the container has started")
	}
	broken = false
	b.start()
	p := b.await("one", "ready or failed", func(p *corev1.Pod) bool { return ready(p) || p.Status.Phase == corev1.PodFailed })
	if c := p.Status.ContainerStatuses; !ready(p) || c[0].RestartCount != 0 {
		t.Errorf("pod: %s", summary(p))
	}
	if _, containers := b.cri.Counts(); containers != 1 {
		t.Errorf("%d containers, want only the new one", containers)
	}
}

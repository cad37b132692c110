package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
	"github.com/knarr-project/knarr/internal/kubelet/settings"
	"github.com/knarr-project/knarr/internal/volume"
)

// folders is a volume manager that supports emptyDir only.
type folders struct{ fail func(pod *corev1.Pod) error }

func (f folders) Mount(_ context.Context, pod *corev1.Pod, podDir string) (map[string]volume.MountPoint, error) {
	if f.fail != nil {
		if err := f.fail(pod); err != nil {
			return nil, err
		}
	}
	out := map[string]volume.MountPoint{}
	for _, v := range pod.Spec.Volumes {
		path := filepath.Join(podDir, "volumes", v.Name)
		if err := os.MkdirAll(path, 0o777); err != nil {
			return nil, err
		}
		out[v.Name] = volume.MountPoint{HostPath: path}
	}
	return out, nil
}

func (folders) Refresh(context.Context, *corev1.Pod) error { return nil }

func (folders) Freeze(types.UID) {}

func (folders) Unmount(_ context.Context, _ types.UID, podDir string) error {
	return os.RemoveAll(filepath.Join(podDir, "volumes"))
}

// bench is a node agent between a fake API and a fake runtime.
type bench struct {
	t      *testing.T
	api    *clienttest.Memory
	cri    *fake.CRI
	events *fake.Events
	k      *Kubelet
	cfg    Config
	stop   func()
}

func newBench(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, api: clienttest.NewMemory(), cri: fake.NewCRI(), events: &fake.Events{}}
	b.cfg = Config{
		NodeName: "node", RootDir: t.TempDir(), Client: b.api, Events: b.events, Runtime: b.cri, Images: fake.Images{}, Volumes: folders{},
		Settings: settings.Default(), NoCgroups: true, Listen: "-", NodeIPs: []string{"192.0.2.1"},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	b.cfg.Settings.ClusterDNS, b.cfg.Settings.ClusterDomain, b.cfg.Settings.EvictionHard = []string{"10.0.0.10"}, "cluster.local", map[string]string{}
	for _, fn := range change {
		fn(b)
	}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bench) start() {
	b.t.Helper()
	k, err := New(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.k = k
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
		b.stop = func() {}
	}
}

// pod builds a pod with containers given as "name" or "name:image".
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: "node", TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
	}
	for _, fn := range change {
		fn(p)
	}
	return p
}

func (b *bench) create(p *corev1.Pod) *corev1.Pod {
	b.t.Helper()
	made, err := client.Create(b.t.Context(), client.Interface(b.api), p)
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

// await waits until the API's version of a pod satisfies ok.
func (b *bench) await(name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	b.t.Helper()
	var p *corev1.Pod
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		var err error
		if p, err = client.Get[*corev1.Pod](b.t.Context(), b.api, "default", name); err == nil && ok(p) {
			return p
		}
	}
	b.t.Fatalf("pod %s did not become %s.\nstatus: %s\ncalls: %q\nevents: %s", name, what, summary(p), b.cri.Log(), strings.Join(b.events.All(), "\n  "))
	return nil
}

func (b *bench) gone(name string) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if _, err := client.Get[*corev1.Pod](b.t.Context(), b.api, "default", name); err != nil {
			return
		}
	}
	b.t.Fatalf("pod %s is not gone; calls: %q", name, b.cri.Log())
}

func (b *bench) delete(name string) {
	b.t.Helper()
	if err := client.Delete[*corev1.Pod](b.t.Context(), b.api, "default", name, metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func summary(p *corev1.Pod) string {
	if p == nil {
		return "none"
	}
	s := fmt.Sprintf("%s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for _, c := range list {
			s += fmt.Sprintf("\n  %s ready=%v restarts=%d state=%+v last=%+v", c.Name, c.Ready, c.RestartCount, c.State, c.LastTerminationState)
		}
	}
	for _, c := range p.Status.Conditions {
		s += fmt.Sprintf("\n  %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return s
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func phase(want corev1.PodPhase) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Status.Phase == want }
}

func never(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }

func onFailure(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }

// exits makes containers exit on their own. The map holds name → exit code.
func exits(codes map[string]int32) func(*bench) {
	return func(b *bench) {
		b.cri.Behave = func(c *runtimeapi.ContainerConfig) fake.Behavior {
			if code, ok := codes[c.Metadata.Name]; ok {
				return fake.Behavior{ExitAfter: time.Millisecond, ExitCode: code}
			}
			return fake.Behavior{}
		}
	}
}

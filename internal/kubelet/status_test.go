package kubelet

import (
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/fake"
)

func TestAnOverwrittenPodStatusIsCorrected(t *testing.T) {
	b := newBench(t)
	b.create(pod("one"))
	p := b.await("one", "ready", ready)
	before := len(b.cri.Log())
	for range 2 { // the second correction is delayed
		impostor := p.DeepCopy()
		impostor.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
		}}
		if _, err := client.UpdateStatus(t.Context(), client.Interface(b.api), impostor); err != nil {
			t.Fatal(err)
		}
		mended := b.await("one", "ready again", ready)
		if mended.Status.Phase != corev1.PodRunning || mended.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("status: %s", summary(mended))
		}
		p = mended
	}
	if calls := b.cri.Log()[before:]; len(calls) > 0 {
		t.Errorf("the pod was touched: %q", calls)
	}
}

func TestAContainerThatIsReplacedIsNotShownAsEnded(t *testing.T) {
	b := newBench(t)
	view, err := client.Open[*corev1.Pod](t.Context(), b.api, client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []*corev1.Pod
	view.Subscribe(t.Context(), func(e client.TypedEvent[*corev1.Pod]) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, e.Object)
	})
	b.create(pod("one"))
	p := b.await("one", "ready", ready).DeepCopy()
	mu.Lock()
	seen = nil
	mu.Unlock()
	p.Spec.Containers[0].Image = "another"
	if _, err := client.Update(t.Context(), client.Interface(b.api), p); err != nil {
		t.Fatal(err)
	}
	b.await("one", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p) })
	mu.Lock()
	defer mu.Unlock()
	for _, p := range seen {
		if !ready(p) {
			t.Errorf("shown between the two: %s", summary(p))
		}
	}
}

func TestAContainerThatCannotStartHasUpstreamsTimes(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.cri.Behave = func(*runtimeapi.ContainerConfig) fake.Behavior {
			return fake.Behavior{StartErr: errors.New("no such program")}
		}
	})
	b.create(pod("one", never))
	p := b.await("one", "failed", phase(corev1.PodFailed))
	end := p.Status.ContainerStatuses[0].State.Terminated
	if end == nil || end.Reason != "StartError" || end.ExitCode != 128 || !end.FinishedAt.After(time.Unix(1, 0)) {
		t.Fatalf("state %+v", p.Status.ContainerStatuses[0].State)
	}
	if end.StartedAt.IsZero() || end.StartedAt.Unix() != 0 {
		t.Errorf("started at %v, want the Unix epoch as upstream's kubelet reports", end.StartedAt)
	}
}

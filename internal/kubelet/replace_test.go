package kubelet

import (
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
)

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

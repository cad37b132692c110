package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestAPodsStatusIsMendedWhenAnotherWriterOverwritesIt(t *testing.T) {
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

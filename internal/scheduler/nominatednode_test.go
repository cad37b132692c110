package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

func nominatedTo(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.NominatedNodeName = node }
}

func TestAPodGoesToItsNominatedNodeIfItFits(t *testing.T) {
	nodes := []*corev1.Node{node("a", "4"), node("b", "4"), node("c", "4", tainted), node("d", "1")}
	profile := plugins.Default(corev1.DefaultSchedulerName)
	busy := []*corev1.Pod{pod("busy", "2", onNode("b"))}
	for expected, want := range map[string]string{"": "a", "b": "b", "c": "a", "d": "a", "gone": "a"} {
		d := Decide(Input{Snapshot: snapshotOf(nodes, busy), Pod: framework.NewPodInfo(pod("p", "2", nominatedTo(expected))), Profile: &profile})
		if d.Node != want {
			t.Errorf("expected on %q, it goes to %q, want %q: %v", expected, d.Node, want, d.Err)
		}
	}
}

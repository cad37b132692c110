package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// BenchmarkDecide places a plain pod in clusters of 100 and 1000 nodes.
func BenchmarkDecide(b *testing.B) {
	for _, count := range []int{100, 1000} {
		b.Run(fmt.Sprint(count, "nodes"), func(b *testing.B) {
			var nodes []*corev1.Node
			var pods []*corev1.Pod
			for i := range count {
				name := fmt.Sprint("node", i)
				nodes = append(nodes, node(name, "8"))
				pods = append(pods, pod(fmt.Sprint("pod", i), "1", onNode(name)))
			}
			snapshot, profile := snapshotOf(nodes, pods), plugins.Default(corev1.DefaultSchedulerName)
			info := framework.NewPodInfo(pod("new", "1"))
			for b.Loop() {
				d := Decide(Input{Snapshot: snapshot, Pod: info, Profile: &profile})
				if d.Node == "" {
					b.Fatal(d.Message())
				}
			}
		})
	}
}

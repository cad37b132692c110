package scheduler

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// takeSnapshot derives a snapshot from the previous one and the changes. It must equal a snapshot
// made from scratch, and must not change later.
func TestSnapshotsShowAllChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(nil, nil)
		nodes, pods := map[string]*corev1.Node{}, map[string]*corev1.Pod{}
		var taken []*framework.Snapshot
		var shown []string
		name := func(what string) string { return what + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, what) }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				n := node(name("node-"), "2", inZone(name("zone-")))
				nodes[n.Name] = n
				c.setNode(n)
			case 1:
				n := name("node-")
				if nodes[n] != nil {
					delete(nodes, n)
					c.removeNode(n)
				}
			case 2, 3:
				p := pod(name("pod-"), "100m", onNode(name("node-")))
				if rapid.Bool().Draw(t, "affinity") {
					antiAffinity(p)
				}
				pods[p.Name] = p
				c.setPod(framework.NewPodInfo(p))
			case 4:
				p := name("pod-")
				if pods[p] != nil {
					c.removePod(pods[p].UID)
					delete(pods, p)
				}
			case 5:
				waiting := pod(name("pod-"), "100m")
				waiting.Generation = 1
				if pods[waiting.Name] == nil {
					bound := waiting.DeepCopy()
					bound.Spec.NodeName = name("node-")
					pods[bound.Name] = bound
					c.assume(framework.NewPodInfo(waiting), bound.Spec.NodeName)
					if !c.confirm(waiting, bound) {
						t.Fatal("an assumed pod is not confirmed")
					}
				}
			case 6:
				taken = append(taken, c.takeSnapshot())
				whole := newCluster(nil, nil)
				for _, n := range nodes {
					whole.setNode(n)
				}
				for _, p := range pods {
					whole.setPod(framework.NewPodInfo(p))
				}
				is := show(c.takeSnapshot())
				if want := show(whole.takeSnapshot()); is != want {
					t.Fatalf("the snapshot shows\n%s\nthere is\n%s", is, want)
				}
				shown = append(shown, is)
			}
		}
		for i, s := range taken {
			if is := show(s); is != shown[i] {
				t.Fatalf("snapshot %d showed\n%s\nand now\n%s", i, shown[i], is)
			}
		}
	})
}

// show prints a snapshot's nodes and pods.
func show(s *framework.Snapshot) string {
	text := ""
	for _, n := range s.Nodes.All() {
		found, ok := s.Node(n.Name())
		var pods []string
		for _, p := range n.Pods {
			pods = append(pods, p.Pod.Name)
		}
		slices.Sort(pods)
		text += fmt.Sprint("\n", n.Name(), ok && found == n, n.Node.Labels, n.Requested.MilliCPU, pods, len(n.WithAffinity), len(n.WithAntiAffinity))
	}
	return text
}

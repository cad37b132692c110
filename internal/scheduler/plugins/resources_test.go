package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

func TestNodesWithThePodsImagesScoreHigher(t *testing.T) {
	withImages := func(name string, images ...corev1.ContainerImage) *framework.NodeInfo {
		return framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Images: images}})
	}
	image := func(mb int64, names ...string) corev1.ContainerImage {
		return corev1.ContainerImage{Names: names, SizeBytes: mb << 20}
	}
	nodes := []*framework.NodeInfo{
		withImages("both", image(500, "web:latest"), image(1000, "init:1")),
		withImages("one", image(500, "web:latest")),
		withImages("small", image(10, "small:1")),
		withImages("none"),
	}
	for name, c := range map[string]struct {
		init, main []string
		want       [4]int64 // of each node
		skipped    bool
	}{
		"an image without a tag means latest":      {main: []string{"web"}, want: [4]int64{23, 23, 0, 0}},
		"an init container's image counts":         {init: []string{"init:1"}, main: []string{"web"}, want: [4]int64{24, 11, 0, 0}},
		"an image of two containers counts twice":  {main: []string{"web", "web:latest"}, want: [4]int64{24, 24, 0, 0}},
		"a small image does not count":             {main: []string{"small:1"}},
		"an image that no node has does not count": {main: []string{"other:1"}, skipped: true},
	} {
		pod := &corev1.Pod{}
		for _, i := range c.init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Image: i})
		}
		for _, i := range c.main {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Image: i})
		}
		state, info := framework.State{}, framework.NewPodInfo(pod)
		status := imageLocality{}.PreScore(state, info, framework.NewSnapshot(nodes, nil, nil), nodes)
		if status.Skipped() != c.skipped {
			t.Errorf("%s: skipped is %v", name, status.Skipped())
		}
		for i, n := range nodes {
			if got, _ := (imageLocality{}).Score(state, info, n); got != c.want[i] {
				t.Errorf("%s: node %s has score %d, want %d", name, n.Name(), got, c.want[i])
			}
		}
	}
}

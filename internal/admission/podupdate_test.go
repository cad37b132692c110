package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client/clienttest"
)

func TestChangesBeyondTheNodesAbilitiesAreRefused(t *testing.T) {
	requests := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}
	}
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
		n.Status.Allocatable = requests("2", "1Gi").Requests
		if change != nil {
			change(n)
		}
		return n
	}
	const lacksInit = `pods "p" is forbidden: pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node "n"`
	for name, tc := range map[string]struct {
		node   *corev1.Node
		sub    string
		change func(*corev1.Pod)
		want   string
		cause  metav1.CauseType
	}{
		"a resize that fits":                  {node: node(nil), sub: "resize", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = requests("2", "1Gi") }},
		"a resize beyond the node's capacity": {node: node(nil), sub: "resize", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = requests("3", "2Gi") }, cause: "NodeCapacity", want: `pods "p" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824`},
		"a node without the feature":          {node: node(func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "windows" }), sub: "resize", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = requests("1500m", "1Mi") }, cause: "UnsupportedPlatform", want: `pods "p" is forbidden: pod resize is only supported on linux nodes, node "n" is "windows"`},
		"a missing node":                      {sub: "resize", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = requests("3", "1Mi") }, want: `pods "p" is forbidden: node "n" not found`},
		"a label change":                      {sub: "resize", change: func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }},
		"a pod without a node":                {sub: "resize", change: func(p *corev1.Pod) { p.Spec.NodeName = ""; p.Spec.Containers[0].Resources = requests("3", "1Mi") }},
		"a resize of an init container":       {node: node(nil), sub: "resize", change: func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources = requests("1500m", "1Mi") }, want: lacksInit},
		"a feature that the node declares": {node: node(func(n *corev1.Node) { n.Status.DeclaredFeatures = []string{"InPlacePodVerticalScalingInitContainers"} }), sub: "resize",
			change: func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources = requests("1500m", "1Mi") }},
		"a status update on a node that is too small": {node: node(func(n *corev1.Node) { n.Status.Allocatable = nil }), sub: "status", change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }},
	} {
		t.Run(name, func(t *testing.T) {
			old := testPod()
			old.Spec.NodeName = "n"
			old.Spec.Containers[0].Resources = requests("1", "1Mi")
			old.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", Resources: requests("1", "1Mi")}}
			pod := old.DeepCopy()
			tc.change(pod)
			m := clienttest.NewMemory(namespaceWith(nil))
			if tc.node != nil {
				m = clienttest.NewMemory(namespaceWith(nil), tc.node)
			}
			chain, err := Default(t.Context(), m, Config{Disable: []string{"ServiceAccount"}})
			if err != nil {
				t.Fatal(err)
			}
			a := attributesOf(pod)
			a.Operation, a.OldObject, a.Subresource = Update, old, tc.sub
			err = chain.Validate(t.Context(), a)
			if (err == nil) != (tc.want == "") || err != nil && err.Error() != tc.want {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if tc.cause != "" && !apierrors.HasStatusCause(err, tc.cause) {
				t.Errorf("the cause is missing: %v", err)
			}
		})
	}
}

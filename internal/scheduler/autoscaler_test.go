package scheduler_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

// podsThatNeedNodes selects pods as the cluster autoscaler does: no node, and refused as
// unschedulable. A pod with a nominated node is expected there once its victims are gone.
func podsThatNeedNodes(c *controllertest.Cluster) (pending, nominated []string) {
	for _, p := range controllertest.List[*corev1.Pod](c) {
		condition := controller.PodCondition(p, corev1.PodScheduled)
		switch {
		case p.Spec.NodeName != "" || p.DeletionTimestamp != nil || condition == nil:
		case condition.Status != corev1.ConditionFalse || condition.Reason != corev1.PodReasonUnschedulable:
		case p.Status.NominatedNodeName != "":
			nominated = append(nominated, p.Name+" on "+p.Status.NominatedNodeName)
		default:
			pending = append(pending, p.Name)
		}
	}
	slices.Sort(pending)
	slices.Sort(nominated)
	return pending, nominated
}

func sized(c *controllertest.Cluster, name, cpu string, change ...func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: controllertest.Template(name).Spec}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	for _, fn := range change {
		fn(p)
	}
	controllertest.Create(c, p)
}

func TestAnAutoscalerFindsThePodsThatNeedANode(t *testing.T) {
	c := start(t, []string{"a"})
	low := func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](1) }
	sized(c, "running", "3", low)
	podIs(t, c, "running", "a", "")
	sized(c, "waiting", "2", low)
	sized(c, "too-large", "6", low)
	sized(c, "gated", "6", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} })
	is := func(wantPending, wantNominated string) {
		t.Helper()
		c.Eventually("pods need nodes: "+wantPending+"; nominated: "+wantNominated, func() string {
			pending, nominated := podsThatNeedNodes(c)
			if strings.Join(pending, " ") == wantPending && strings.Join(nominated, " ") == wantNominated {
				return ""
			}
			return strings.Join(pending, " ") + "; " + strings.Join(nominated, " ")
		})
	}
	is("too-large waiting", "")
	if !slices.ContainsFunc(c.Events.List(), func(e string) bool { return strings.Contains(e, "FailedScheduling") }) {
		t.Errorf("no event FailedScheduling: %q", c.Events.List())
	}

	// No kubelet ends the victim: the preemptor waits, and needs no new node.
	sized(c, "preemptor", "2", func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](1000) })
	is("too-large waiting", "preemptor on a")

	// The autoscaler adds a node for the others.
	controllertest.Retry(c, controllertest.Node(c, "new", map[string]string{corev1.LabelHostname: "new"}), func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10"),
		}
	}, "status")
	podIs(t, c, "too-large", "new", "")
	podIs(t, c, "waiting", "new", "")
}

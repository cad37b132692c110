package scheduler_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/scheduler"
)

// startGangs runs the scheduler with gang scheduling, and nodes that fit three pods of a gang.
func startGangs(t *testing.T, nodes ...string) *controllertest.Cluster {
	c := controllertest.New(t, "GenericWorkload")
	for _, name := range nodes {
		gangNode(c, name)
	}
	c.Run(controller.Starter{Name: "scheduler", Run: func(ctx context.Context, env controller.Env) error {
		return scheduler.New(scheduler.Config{Client: env.Client, Events: env.Events, Gates: []string{"GenericWorkload", "GangScheduling"}}).Run(ctx)
	}})
	return c
}

func gangNode(c *controllertest.Cluster, name string) {
	controllertest.Retry(c, controllertest.Node(c, name, map[string]string{corev1.LabelHostname: name}), func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("3"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10"),
		}
	}, "status")
}

func newGroup(c *controllertest.Cluster, name string, minCount int32) {
	g := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Spec.SchedulingPolicy.Basic = &schedulingv1alpha2.BasicSchedulingPolicy{}
	if minCount > 0 {
		g.Spec.SchedulingPolicy = schedulingv1alpha2.PodGroupSchedulingPolicy{Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: minCount}}
	}
	controllertest.Create(c, g)
}

// newMembers creates pods of a group that need a core each.
func newMembers(c *controllertest.Cluster, group string, count int, change func(*corev1.Pod)) []string {
	var names []string
	for i := range count {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(group, "-", i)}, Spec: controllertest.Template(group).Spec}
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		if change != nil {
			change(p)
		}
		controllertest.Create(c, p)
		names = append(names, p.Name)
	}
	return names
}

func groupIs(t *testing.T, c *controllertest.Cluster, name string, is metav1.ConditionStatus, reason string) {
	t.Helper()
	c.Eventually("the group is "+reason, func() string {
		g, err := client.Get[*schedulingv1alpha2.PodGroup](t.Context(), c.Client, "default", name)
		if err != nil {
			return err.Error()
		}
		condition := apimeta.FindStatusCondition(g.Status.Conditions, schedulingv1alpha2.PodGroupScheduled)
		if condition == nil || condition.Status != is || condition.Reason != reason {
			return fmt.Sprintf("%+v", condition)
		}
		return ""
	})
}

// bound counts the pods that have a node.
func bound(t *testing.T, c *controllertest.Cluster, names []string) int {
	n := 0
	for _, name := range names {
		p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

func allBound(t *testing.T, c *controllertest.Cluster, names []string, want int) {
	t.Helper()
	c.Eventually("the group's pods are bound", func() string {
		if n := bound(t, c, names); n != want {
			return fmt.Sprint(n, " of ", want)
		}
		return ""
	})
}

func TestAGangIsBoundAllOrNothing(t *testing.T) {
	c := startGangs(t, "a")
	newGroup(c, "gang", 4)
	pods := newMembers(c, "gang", 4, nil)
	groupIs(t, c, "gang", metav1.ConditionFalse, "Unschedulable")
	waiting := 0
	for _, name := range pods {
		c.Eventually("each pod says why it waits", func() string {
			p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", name)
			if err != nil {
				return err.Error()
			}
			condition := controller.PodCondition(p, corev1.PodScheduled)
			if condition == nil {
				return "no condition"
			}
			if condition.Message == "waiting for minCount pods from a gang to be scheduled" {
				waiting++
			}
			return ""
		})
	}
	if waiting != 3 {
		t.Errorf("%d pods wait for the others, want 3", waiting)
	}
	if n := bound(t, c, pods); n != 0 {
		t.Errorf("%d pods are bound though the gang does not fit", n)
	}
	gangNode(c, "b")
	allBound(t, c, pods, 4)
	groupIs(t, c, "gang", metav1.ConditionTrue, "Scheduled")
}

func TestAGangWaitsForItsGroupAndItsPods(t *testing.T) {
	c := startGangs(t, "a")
	first := newMembers(c, "gang", 2, nil)
	// A pod without a group is scheduled after them: the gang's pods have been looked at.
	alone := newMembers(c, "other", 1, func(p *corev1.Pod) { p.Spec.SchedulingGroup = nil })
	allBound(t, c, alone, 1)
	newGroup(c, "gang", 3)
	newMembers(c, "next", 1, func(p *corev1.Pod) { p.Spec.SchedulingGroup = nil })
	if n := bound(t, c, first); n != 0 {
		t.Errorf("%d pods are bound before the gang is complete", n)
	}
	gangNode(c, "b")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gang-last"}, Spec: controllertest.Template("gang").Spec}
	group := "gang"
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	controllertest.Create(c, p)
	allBound(t, c, append(first, "gang-last"), 3)
}

func TestTwoGangsDoNotBlockEachOther(t *testing.T) {
	c := startGangs(t, "a")
	newGroup(c, "one", 2)
	newGroup(c, "two", 2)
	one, two := newMembers(c, "one", 2, nil), newMembers(c, "two", 2, nil)
	// Only one of them fits. Its end lets the other one go.
	c.Eventually("one gang is bound", func() string {
		if n, m := bound(t, c, one), bound(t, c, two); n+m != 2 || n == m {
			return fmt.Sprint(n, " and ", m)
		}
		return ""
	})
	done, waits := one, two
	if bound(t, c, two) == 2 {
		done, waits = two, one
	}
	for _, name := range done {
		p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", name)
		if err != nil {
			t.Fatal(err)
		}
		controllertest.Retry(c, p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "status")
	}
	allBound(t, c, waits, 2)
}

func TestABasicGroupBindsWhatFits(t *testing.T) {
	c := startGangs(t, "a")
	newGroup(c, "loose", 0)
	pods := newMembers(c, "loose", 4, nil)
	allBound(t, c, pods, 3)
	groupIs(t, c, "loose", metav1.ConditionTrue, "Scheduled")
}

func TestAGangPreemptsOnlyIfItThenFits(t *testing.T) {
	c := startGangs(t, "a")
	low := newMembers(c, "low", 2, func(p *corev1.Pod) {
		p.Spec.SchedulingGroup, p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = nil, new(int32), new(int64)
	})
	allBound(t, c, low, 2)
	high := int32(1000)
	urgent := func(p *corev1.Pod) { p.Spec.Priority = &high }
	newGroup(c, "large", 4)
	newMembers(c, "large", 4, urgent)
	groupIs(t, c, "large", metav1.ConditionFalse, "Unschedulable")
	for _, name := range low {
		if p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", name); err != nil || p.DeletionTimestamp != nil {
			t.Fatalf("a pod was evicted for a gang that does not fit: %v", err)
		}
	}
	newGroup(c, "fitting", 2)
	pods := newMembers(c, "fitting", 2, urgent)
	allBound(t, c, pods, 2)
}

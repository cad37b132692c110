package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/node"
)

func get(t *testing.T, c *controllertest.Cluster, name string) *corev1.Node {
	t.Helper()
	n, err := client.Get[*corev1.Node](t.Context(), c.Client, "", name)
	if err != nil {
		t.Fatal(err)
	}
	return n.DeepCopy()
}

func tainted(n *corev1.Node, key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
}

func TestWithoutAPodRangeNoNodeGetsAPart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// It has no client, so IPAM must not use it.
	if err := node.IPAM.Run(ctx, controller.Env{}); err != nil {
		t.Error(err)
	}
}

// Up to 100 nodes, kubelets ask for each Secret anew; beyond, they cache it for 15 s.
func TestTheTTLOfAllNodesFollowsTheirNumber(t *testing.T) {
	c := controllertest.New(t)
	c.Run(node.TTL)
	all := func(want string) func() string {
		return func() string {
			for _, n := range controllertest.List[*corev1.Node](c) {
				if got := n.Annotations[corev1.ObjectTTLAnnotationKey]; got != want {
					return fmt.Sprintf("%s: TTL %q, wanted %q", n.Name, got, want)
				}
			}
			return ""
		}
	}
	for i := range 100 {
		controllertest.Node(c, fmt.Sprintf("n%d", i), nil)
	}
	c.Eventually("100 nodes", all("0"))
	controllertest.Node(c, "n100", nil)
	c.Eventually("101 nodes", all("15"))
	if err := client.Delete[*corev1.Node](t.Context(), c.Client, "", "n7", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("100 nodes again", all("0"))
}

func TestEachNodeGetsAPartOfThePodRange(t *testing.T) {
	c := controllertest.New(t)
	c.Run(node.IPAM, node.TTL)
	for i := range 5 {
		controllertest.Node(c, fmt.Sprintf("n%d", i), nil)
	}
	c.Eventually("all different", func() string {
		seen := map[string]bool{}
		for _, n := range controllertest.List[*corev1.Node](c) {
			if n.Spec.PodCIDR == "" || len(n.Spec.PodCIDRs) != 1 || seen[n.Spec.PodCIDR] || n.Annotations[corev1.ObjectTTLAnnotationKey] != "0" {
				return fmt.Sprintf("%s: %q %v", n.Name, n.Spec.PodCIDR, n.Annotations)
			}
			seen[n.Spec.PodCIDR] = true
		}
		if !seen["10.42.0.0/24"] || !seen["10.42.4.0/24"] {
			return fmt.Sprint(seen)
		}
		return ""
	})
}

func TestASilentNodeBecomesUnknownAndIsEvictedFrom(t *testing.T) {
	c := controllertest.New(t)
	c.Config.NodeMonitorGrace = 3 * time.Second
	m := node.NewMetrics()
	c.Run(node.Lifecycle(m), node.TaintEviction(m))
	// The other node keeps posting, so that not all nodes are down.
	controllertest.Node(c, "alive", nil)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				n, err := client.Get[*corev1.Node](t.Context(), c.Client, "", "alive")
				if err != nil {
					continue
				}
				n = n.DeepCopy()
				for i := range n.Status.Conditions {
					if n.Status.Conditions[i].Type == corev1.NodeReady {
						n.Status.Conditions[i].Status = corev1.ConditionTrue
						n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(n.Status.Conditions[i].LastHeartbeatTime.Add(time.Second))
					}
				}
				_, _ = client.UpdateStatus(t.Context(), c.Client, n)
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	controllertest.Node(c, "silent", nil)
	template := controllertest.Template("p")
	none, later := int64(0), int64(3600)
	pod := func(name string, seconds *int64) {
		template.Spec.NodeName = "silent"
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template.Spec}
		p.Spec.TerminationGracePeriodSeconds = &none
		p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}}
		controllertest.Create(c, p)
	}
	pod("patient", &later)
	pod("hasty", &none)
	c.Eventually("the node is unreachable", func() string {
		n := get(t, c, "silent")
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		if n.Status.Conditions[i].Status != corev1.ConditionUnknown || n.Status.Conditions[i].Reason != "NodeStatusUnknown" ||
			!tainted(n, corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule) || !tainted(n, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute) {
			return fmt.Sprintf("%+v %+v", n.Status.Conditions, n.Spec.Taints)
		}
		return ""
	})
	c.Eventually("an event", func() string {
		if events := c.Events.List(); !slices.Contains(events, "Normal NodeNotReady Node silent status is now: NodeNotReady") {
			return fmt.Sprint(events)
		}
		return ""
	})
	c.Eventually("the hasty pod is deleted", func() string {
		p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", "hasty")
		if apierrors.IsNotFound(err) || (err == nil && p.DeletionTimestamp != nil) {
			return ""
		}
		return fmt.Sprint(err)
	})
	p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", "patient")
	if err != nil || p.DeletionTimestamp != nil {
		t.Errorf("the patient pod is gone: %v", err)
	}
	controllertest.Retry(c, get(t, c, "silent"), func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].Status = corev1.ConditionFalse
			if n.Status.Conditions[i].Type == corev1.NodeReady {
				n.Status.Conditions[i].Status = corev1.ConditionTrue
				n.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
			}
		}
	}, "status")
	c.Eventually("a heartbeat removes the taints", func() string {
		if n := get(t, c, "silent"); tainted(n, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute) {
			return fmt.Sprint(n.Spec.Taints)
		}
		return ""
	})
}

func TestANodeThatWasNeverReadyCausesNoEvent(t *testing.T) {
	c := controllertest.New(t)
	c.Config.NodeMonitorGrace = time.Millisecond
	controllertest.Retry(c, controllertest.Node(c, "n", nil), func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, "status")
	c.Run(node.Lifecycle(node.NewMetrics()))
	c.Eventually("it is unreachable", func() string { // the taint comes after the Event
		if n := get(t, c, "n"); !tainted(n, corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule) {
			return fmt.Sprint(n.Spec.Taints)
		}
		return ""
	})
	for _, e := range c.Events.List() {
		if strings.Contains(e, "NodeNotReady") {
			t.Error(e)
		}
	}
}

func TestCordoningTaints(t *testing.T) {
	c := controllertest.New(t)
	c.Run(node.Lifecycle(node.NewMetrics()))
	controllertest.Node(c, "n", nil)
	controllertest.Retry(c, get(t, c, "n"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	c.Eventually("it is tainted", func() string {
		if !tainted(get(t, c, "n"), corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule) {
			return "not yet"
		}
		return ""
	})
}

func TestOrphanedAndExcessPodsAreDeleted(t *testing.T) {
	c := controllertest.New(t)
	c.Config.TerminatedPodLimit = 2
	c.Run(node.PodGC)
	template := controllertest.Template("p")
	for i := range 5 {
		p := controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ended-%d", i)}, Spec: template.Spec}).DeepCopy()
		p.Status.Phase = corev1.PodSucceeded
		if _, err := client.UpdateStatus(t.Context(), c.Client, p); err != nil {
			t.Fatal(err)
		}
	}
	c.Eventually("two ended pods are kept", func() string {
		if n := len(controllertest.List[*corev1.Pod](c)); n != 2 {
			return fmt.Sprint(n)
		}
		return ""
	})
	template.Spec.Containers[0].Image = "x"
	controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "unbound", Finalizers: []string{"example.com/hold"}}, Spec: template.Spec})
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", "unbound", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("a deleted pod without node has failed", func() string {
		p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", "unbound")
		if err != nil || !controller.PodEnded(p) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

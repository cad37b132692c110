package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

func hintNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("9")}
	for _, c := range change {
		c(n)
	}
	return n
}

func hintPod(change ...func(*corev1.Pod)) *framework.PodInfo {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "a"}}}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}
	for _, c := range change {
		c(p)
	}
	return framework.NewPodInfo(p)
}

// The cases are upstream's tests of QueueingHintFns, told again.
func TestHints(t *testing.T) {
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tainted := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} }
	cpu := func(v string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse(v) }
	}
	zone := func(v string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels["zone"] = v } }
	selects := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }
	port := func(v int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: v}} }
	}
	app := func(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels["app"] = v } }
	namespace := func(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = v } }
	requests := func(v string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(v) }
	}
	term := []corev1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}
	near := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
	}
	away := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
	}
	spread := func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		}}
	}
	added := func(n any) framework.Change { return framework.Change{New: n} }
	gone := func(n any) framework.Change { return framework.Change{Old: n} }
	from := func(old, now any) framework.Change { return framework.Change{Old: old, New: now} }
	for name, c := range map[string]struct {
		plugin framework.Hinter
		pod    *framework.PodInfo
		change framework.Change
		want   bool
	}{
		"a new cordoned node":                 {nodeUnschedulable{}, hintPod(), added(hintNode(cordoned)), false},
		"a new open node":                     {nodeUnschedulable{}, hintPod(), added(hintNode()), true},
		"a node is opened":                    {nodeUnschedulable{}, hintPod(), from(hintNode(cordoned), hintNode()), true},
		"an open node changes":                {nodeUnschedulable{}, hintPod(), from(hintNode(), hintNode(zone("b"))), false},
		"a node loses its taint":              {taintToleration{}, hintPod(), from(hintNode(tainted), hintNode()), true},
		"a node gets a taint":                 {taintToleration{}, hintPod(), from(hintNode(), hintNode(tainted)), false},
		"a new tainted node":                  {taintToleration{}, hintPod(), added(hintNode(tainted)), false},
		"a node gets the selected label":      {nodeAffinity{}, hintPod(selects), from(hintNode(), hintNode(zone("b"))), true},
		"a node gets another label":           {nodeAffinity{}, hintPod(selects), from(hintNode(), hintNode(zone("c"))), false},
		"a matching node changes":             {nodeAffinity{}, hintPod(selects), from(hintNode(zone("b")), hintNode(zone("b"), tainted)), false},
		"a pod frees the port":                {nodePorts{}, hintPod(port(80)), gone(hintPod(port(80))), true},
		"a pod frees another port":            {nodePorts{}, hintPod(port(80)), gone(hintPod(port(81))), false},
		"a pod without ports ends":            {nodePorts{}, hintPod(port(80)), gone(hintPod()), false},
		"a new node for a port":               {nodePorts{}, hintPod(port(80)), added(hintNode()), true},
		"a pod ends":                          {resourcesFit{}, hintPod(), gone(hintPod()), true},
		"a pod shrinks":                       {resourcesFit{}, hintPod(), from(hintPod(), hintPod(requests("1"))), true},
		"a pod grows":                         {resourcesFit{}, hintPod(), from(hintPod(requests("1")), hintPod()), false},
		"a new small node":                    {resourcesFit{}, hintPod(), added(hintNode(cpu("1"))), false},
		"a new large node":                    {resourcesFit{}, hintPod(), added(hintNode()), true},
		"a node grows enough":                 {resourcesFit{}, hintPod(), from(hintNode(cpu("1")), hintNode()), true},
		"a node grows a little":               {resourcesFit{}, hintPod(), from(hintNode(cpu("1")), hintNode(cpu("1500m"))), false},
		"a node shrinks":                      {resourcesFit{}, hintPod(), from(hintNode(cpu("8")), hintNode()), false},
		"the wanted neighbour comes":          {interPodAffinity{}, hintPod(near), added(hintPod()), true},
		"another neighbour comes":             {interPodAffinity{}, hintPod(near), added(hintPod(app("b"))), false},
		"a neighbour of another namespace":    {interPodAffinity{}, hintPod(near), added(hintPod(namespace("x"))), false},
		"the unwanted neighbour leaves":       {interPodAffinity{}, hintPod(away), gone(hintPod()), true},
		"another neighbour leaves":            {interPodAffinity{}, hintPod(away), gone(hintPod(app("b"))), false},
		"a pod that keeps away others leaves": {interPodAffinity{}, hintPod(), gone(hintPod(away, app("b"))), true},
		"a neighbour gets the label":          {interPodAffinity{}, hintPod(near), from(hintPod(app("b")), hintPod()), true},
		"a neighbour loses the label":         {interPodAffinity{}, hintPod(near), from(hintPod(), hintPod(app("b"))), false},
		"a node changes its zone":             {interPodAffinity{}, hintPod(near), from(hintNode(), hintNode(zone("b"))), true},
		"a node keeps its zone":               {interPodAffinity{}, hintPod(near), from(hintNode(), hintNode(tainted)), false},
		"a counted pod leaves":                {topologySpread{}, hintPod(spread), gone(hintPod()), true},
		"another pod leaves":                  {topologySpread{}, hintPod(spread), gone(hintPod(app("b"))), false},
		"a pod of another namespace leaves":   {topologySpread{}, hintPod(spread), gone(hintPod(namespace("x"))), false},
		"a pod begins to count":               {topologySpread{}, hintPod(spread), from(hintPod(app("b")), hintPod()), true},
		"a node without the key comes":        {topologySpread{}, hintPod(spread), added(&corev1.Node{}), false},
		"a node with the key comes":           {topologySpread{}, hintPod(spread), added(hintNode()), true},
		"a node with the key goes":            {topologySpread{}, hintPod(spread), gone(hintNode()), true},
		"a node's domain changes":             {topologySpread{}, hintPod(spread), from(hintNode(), hintNode(zone("b"))), true},
		"a node's size changes":               {topologySpread{}, hintPod(spread), from(hintNode(), hintNode(cpu("9"))), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.plugin.Helps(c.pod, &c.change); got != c.want {
				t.Errorf("helps: %v", got)
			}
		})
	}
}

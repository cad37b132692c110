package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (g *generator) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if !g.oneIn(12) {
		n.Labels[corev1.LabelHostname] = name
	}
	if !g.oneIn(5) {
		n.Labels[corev1.LabelTopologyZone] = pick(g, zones...)
	}
	if g.oneIn(3) {
		n.Labels[corev1.LabelTopologyRegion] = pick(g, "r1", "r2")
	}
	if g.oneIn(2) {
		n.Labels["disk"] = pick(g, "ssd", "hdd")
	}
	if g.oneIn(2) {
		n.Labels["rank"] = pick(g, "1", "3", "5", "x")
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(pick(g, "1", "2", "3500m", "4", "8")),
		corev1.ResourceMemory: resource.MustParse(pick(g, "1Gi", "4Gi", "7900Mi", "16Gi")),
		corev1.ResourcePods:   resource.MustParse(pick(g, "110", "110", "110", "4", "2")),
	}
	if g.oneIn(15) {
		delete(n.Status.Allocatable, pick(g, corev1.ResourceCPU, corev1.ResourceMemory))
	}
	if !g.oneIn(4) {
		n.Status.Allocatable[corev1.ResourceEphemeralStorage] = resource.MustParse(pick(g, "10Gi", "100Gi"))
	}
	if g.on[extended] && !g.oneIn(3) {
		n.Status.Allocatable["example.com/gpu"] = resource.MustParse(pick(g, "0", "4", "8"))
		n.Status.Allocatable["hugepages-2Mi"] = resource.MustParse(pick(g, "0", "4Mi"))
	}
	n.Status.Capacity = n.Status.Allocatable.DeepCopy()
	if g.on[taints] {
		for range g.IntN(4) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: pick(g, "gpu", "team"), Value: pick(g, "", "x", "5", "10"), Effect: pick(g, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
			})
		}
	}
	if g.on[cordons] && g.oneIn(3) {
		n.Spec.Unschedulable = true
		if g.oneIn(2) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	if g.on[images] {
		for range g.IntN(4) {
			image := pick(g, imageNames...)
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: imageSizes[image]})
		}
	}
	return n
}

// imageSizes are the same on all nodes. Upstream takes the size that one of the nodes reports.
var imageSizes = map[string]int64{
	"web:latest": 300 << 20, "web:v1": 24 << 20, "example.com/db:2": 900 << 20, "docker.io/library/web:latest": 1 << 20,
	"example.com/job@sha256:0123456789012345678901234567890123456789012345678901234567890123": 3000 << 20,
}

var imageNames = slices.Sorted(maps.Keys(imageSizes))

// place fills in the pod's wishes about nodes and other pods.
func (g *generator) place(p *corev1.Pod) {
	if g.on[nodeLabels] && g.oneIn(3) {
		p.Spec.NodeSelector = map[string]string{pick(g, "disk", corev1.LabelTopologyZone): pick(g, "ssd", "za")}
	}
	if g.on[taints] || g.on[cordons] {
		for range g.IntN(4) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, g.toleration())
		}
	}
	a := &corev1.Affinity{}
	g.nodeAffinity(a)
	g.podAffinity(p, a)
	if *a != (corev1.Affinity{}) {
		p.Spec.Affinity = a
	}
	g.spread(p)
}

func (g *generator) toleration() corev1.Toleration {
	t := corev1.Toleration{
		Key: pick(g, "gpu", "team", corev1.TaintNodeUnschedulable), Operator: pick(g, corev1.TolerationOpEqual, "", corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt),
		Effect: pick(g, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		if g.oneIn(3) {
			t.Key = ""
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		t.Value = pick(g, "5", "7", "10")
	default:
		t.Value = pick(g, "", "x", "5")
	}
	return t
}

func (g *generator) nodeAffinity(a *corev1.Affinity) {
	node := &corev1.NodeAffinity{}
	if (g.on[nodeLabels] || g.on[fieldSelectors]) && g.oneIn(2) {
		node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		for range 1 + g.IntN(2) {
			node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = append(node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, g.nodeTerm())
		}
	}
	if g.on[preferredNodes] {
		for range g.IntN(4) {
			node.PreferredDuringSchedulingIgnoredDuringExecution = append(node.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
				Weight: pick(g, int32(1), 7, 50, 100), Preference: g.nodeTerm(),
			})
		}
	}
	if node.RequiredDuringSchedulingIgnoredDuringExecution != nil || len(node.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		a.NodeAffinity = node
	}
}

func (g *generator) nodeTerm() (t corev1.NodeSelectorTerm) {
	if g.on[fieldSelectors] && g.oneIn(2) {
		for range 1 + g.IntN(2) {
			t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{
				Key: metav1.ObjectNameField, Operator: pick(g, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{pick(g, "n0", "n1", "n2", "gone")},
			})
		}
		if g.oneIn(2) {
			return t
		}
	}
	for range g.IntN(3) {
		r := corev1.NodeSelectorRequirement{
			Key:      pick(g, "disk", "rank", corev1.LabelTopologyZone, corev1.LabelHostname, "none"),
			Operator: pick(g, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt),
		}
		switch r.Operator {
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			r.Key, r.Values = "rank", []string{pick(g, "1", "2", "4")}
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			r.Values = []string{pick(g, "ssd", "za", "1", "n1"), pick(g, "hdd", "zb", "3", "n2")}
		}
		t.MatchExpressions = append(t.MatchExpressions, r)
	}
	return t
}

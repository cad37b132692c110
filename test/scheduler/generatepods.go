package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// selector makes a label selector for pods. Now and then it matches all or none.
func (g *generator) selector() *metav1.LabelSelector {
	switch g.IntN(10) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return nil
	case 2, 3, 4, 5:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(g, apps...)}}
	}
	s := &metav1.LabelSelector{}
	for range 1 + g.IntN(2) {
		r := metav1.LabelSelectorRequirement{
			Key:      pick(g, "app", "tier"),
			Operator: pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
		}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = []string{pick(g, "web", "front"), pick(g, "db", "back")}
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

func (g *generator) topologyKey() string {
	return pick(g, corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, "disk")
}

func (g *generator) podAffinity(p *corev1.Pod, a *corev1.Affinity) {
	near, apart := &corev1.PodAffinity{}, &corev1.PodAntiAffinity{}
	if g.on[affinity] && g.oneIn(2) {
		for range 1 + g.IntN(2) {
			near.RequiredDuringSchedulingIgnoredDuringExecution = append(near.RequiredDuringSchedulingIgnoredDuringExecution, g.podTerm(p))
		}
	}
	if g.on[antiAffinity] && g.oneIn(2) {
		for range 1 + g.IntN(2) {
			apart.RequiredDuringSchedulingIgnoredDuringExecution = append(apart.RequiredDuringSchedulingIgnoredDuringExecution, g.podTerm(p))
		}
	}
	if g.on[preferredPods] {
		for range g.IntN(3) {
			near.PreferredDuringSchedulingIgnoredDuringExecution = append(near.PreferredDuringSchedulingIgnoredDuringExecution, corev1.WeightedPodAffinityTerm{Weight: pick(g, int32(1), 30, 100), PodAffinityTerm: g.podTerm(p)})
		}
		for range g.IntN(3) {
			apart.PreferredDuringSchedulingIgnoredDuringExecution = append(apart.PreferredDuringSchedulingIgnoredDuringExecution, corev1.WeightedPodAffinityTerm{Weight: pick(g, int32(1), 30, 100), PodAffinityTerm: g.podTerm(p)})
		}
	}
	if len(near.RequiredDuringSchedulingIgnoredDuringExecution)+len(near.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		a.PodAffinity = near
	}
	if len(apart.RequiredDuringSchedulingIgnoredDuringExecution)+len(apart.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		a.PodAntiAffinity = apart
	}
}

func (g *generator) podTerm(p *corev1.Pod) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: g.topologyKey(), LabelSelector: g.selector()}
	if g.oneIn(4) {
		t.Namespaces = []string{pick(g, "a", "b", "c")}
	}
	switch g.IntN(8) {
	case 0:
		t.NamespaceSelector = &metav1.LabelSelector{}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(g, "x", "y")}}
	}
	if t.LabelSelector != nil && g.oneIn(4) {
		key := pick(g, "hash", "version")
		if g.oneIn(2) {
			t.MatchLabelKeys = []string{key}
			require(p, t.LabelSelector, key, metav1.LabelSelectorOpIn)
		} else {
			t.MismatchLabelKeys = []string{key}
			require(p, t.LabelSelector, key, metav1.LabelSelectorOpNotIn)
		}
	}
	return t
}

// require adds the pod's own value of a label to a selector, as the API server does for
// matchLabelKeys when the pod is created.
func require(p *corev1.Pod, s *metav1.LabelSelector, key string, operator metav1.LabelSelectorOperator) {
	if value, ok := p.Labels[key]; ok {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
	}
}

func (g *generator) spread(p *corev1.Pod) {
	used := map[string]bool{} // the API server refuses the same key and action twice
	for _, action := range []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway} {
		if action == corev1.DoNotSchedule && !g.on[hardSpread] || action == corev1.ScheduleAnyway && !g.on[softSpread] {
			continue
		}
		for range g.IntN(3) {
			c := corev1.TopologySpreadConstraint{MaxSkew: pick(g, int32(1), 1, 2, 3), TopologyKey: g.topologyKey(), WhenUnsatisfiable: action, LabelSelector: g.selector()}
			if used[c.TopologyKey+string(action)] {
				continue
			}
			if g.on[nominations] && c.LabelSelector != nil && len(c.LabelSelector.MatchLabels)+len(c.LabelSelector.MatchExpressions) == 0 {
				// Upstream counts nominated pods for an empty selector, but no others.
				c.LabelSelector = nil
			}
			used[c.TopologyKey+string(action)] = true
			if action == corev1.DoNotSchedule && g.oneIn(3) {
				c.MinDomains = ptr.To(pick(g, int32(1), 2, 4))
			}
			if g.oneIn(2) {
				c.NodeAffinityPolicy = ptr.To(pick(g, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
			}
			if g.oneIn(2) {
				c.NodeTaintsPolicy = ptr.To(pick(g, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
			}
			if c.LabelSelector != nil && g.oneIn(4) {
				key := pick(g, "hash", "version")
				c.MatchLabelKeys = []string{key}
				require(p, c.LabelSelector, key, metav1.LabelSelectorOpIn)
			}
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
		}
	}
}

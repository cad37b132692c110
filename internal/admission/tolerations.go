package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// defaultTolerationSeconds lets pods stay for a while on a node that is not ready or unreachable,
// unless their own tolerations say otherwise.
type defaultTolerationSeconds struct {
	base
	notReady, unreachable int64 // seconds
}

func newDefaultTolerationSeconds(notReady, unreachable *int64) Plugin {
	const usual = 300
	return defaultTolerationSeconds{base{"DefaultTolerationSeconds", []Operation{Create, Update}}, ptr.Deref(notReady, usual), ptr.Deref(unreachable, usual)}
}

// Admit implements Mutator.
func (p defaultTolerationSeconds) Admit(_ context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	for _, taint := range []struct {
		key     string
		seconds int64
	}{{corev1.TaintNodeNotReady, p.notReady}, {corev1.TaintNodeUnreachable, p.unreachable}} {
		tolerates := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint.key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !tolerates {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: taint.key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &taint.seconds,
			})
		}
	}
	return nil
}

// taintNodesByCondition adds the taint not-ready to new nodes; the node lifecycle controller
// removes it when the node is ready.
type taintNodesByCondition struct{ base }

func newTaintNodesByCondition() Plugin {
	return taintNodesByCondition{base{"TaintNodesByCondition", []Operation{Create}}}
}

// Admit implements Mutator.
func (taintNodesByCondition) Admit(_ context.Context, a *Attributes) error {
	node, ok := a.Object.(*corev1.Node)
	if !ok || !a.is("", "nodes", "") {
		return nil
	}
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}

package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// defaultTolerationSeconds lets pods stay 300 seconds on a node that is not ready or unreachable, unless they say otherwise.
type defaultTolerationSeconds struct{ base }

func newDefaultTolerationSeconds() Plugin {
	return defaultTolerationSeconds{base{"DefaultTolerationSeconds", []Operation{Create, Update}}}
}

const tolerationSeconds = int64(300)

// Admit implements Mutator.
func (defaultTolerationSeconds) Admit(_ context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerates := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !tolerates {
			seconds := tolerationSeconds
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			})
		}
	}
	return nil
}

// taintNodesByCondition gives new nodes the taint not-ready, until the node lifecycle controller has seen them ready.
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

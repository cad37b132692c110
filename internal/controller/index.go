package controller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
)

const byNodeName = client.SharedIndex + "node"

// IndexPodsByNode indexes pods by spec.nodeName.
func IndexPodsByNode(pods client.ViewOf[*corev1.Pod]) {
	pods.AddIndex(byNodeName, func(p *corev1.Pod) []string {
		if p.Spec.NodeName == "" {
			return nil
		}
		return []string{p.Spec.NodeName}
	})
}

// PodsOnNode lists the pods bound to a node.
func PodsOnNode(pods client.ViewOf[*corev1.Pod], node string) []*corev1.Pod {
	return pods.ByIndex(byNodeName, node)
}

package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/client"
)

// podTopologyLabels copies zone and region of the node to the pod's labels when the pod is bound
// (KEP-4742). The downward API can pass them to containers. They replace labels that the pod
// already has.
type podTopologyLabels struct {
	base
	nodes *client.Lazy[*corev1.Node]
}

func newPodTopologyLabels(nodes *client.Lazy[*corev1.Node]) Plugin {
	return podTopologyLabels{base{"PodTopologyLabels", []Operation{Create}}, nodes}
}

// Admit implements Mutator.
func (p podTopologyLabels) Admit(ctx context.Context, a *Attributes) error {
	if a.Resource.Group != "" {
		return nil
	}
	switch o := a.Object.(type) {
	case *corev1.Binding:
		if o.Target.Kind != "" && o.Target.Kind != "Node" || o.Target.Name == "" {
			return nil
		}
		return p.label(ctx, o.Target.Name, &o.Labels)
	case *corev1.Pod:
		if a.Subresource != "" || o.Spec.NodeName == "" {
			return nil
		}
		return p.label(ctx, o.Spec.NodeName, &o.Labels)
	}
	return nil
}

func (p podTopologyLabels) label(ctx context.Context, nodeName string, labels *map[string]string) error {
	node, err := p.nodes.Find(ctx, "", nodeName)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil // a pod may be bound to a node that does not exist yet
		}
		return err
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		value, ok := node.Labels[key]
		if !ok {
			continue
		}
		if *labels == nil {
			*labels = map[string]string{}
		}
		(*labels)[key] = value
	}
	return nil
}

// limitAntiAffinity (off by default) allows required anti-affinity between nodes only, not between
// zones.
type limitAntiAffinity struct{ base }

func newLimitAntiAffinity() Plugin {
	return limitAntiAffinity{base{"LimitPodHardAntiAffinityTopology", []Operation{Create, Update}}}
}

// Validate implements Validator.
func (p limitAntiAffinity) Validate(_ context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok || pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return a.forbid(fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname))
		}
	}
	return nil
}

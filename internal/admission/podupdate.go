package admission

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	featuretypes "k8s.io/component-helpers/nodedeclaredfeatures/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/version"
)

// Plugins that refuse changes of a running pod that its node cannot carry out.

// nodeFeatures refuses a change that needs a feature which the pod's node does not declare
// (KEP-5328).
type nodeFeatures struct {
	base
	nodes     *client.Lazy[*corev1.Node]
	framework *nodedeclaredfeatures.Framework
}

// apiVersion is the Kubernetes version whose features are checked.
var apiVersion = utilversion.MustParseSemantic(version.Kubernetes)

func newNodeFeatures(nodes *client.Lazy[*corev1.Node]) Plugin {
	return nodeFeatures{base{"NodeDeclaredFeatureValidator", []Operation{Update}}, nodes, nodedeclaredfeatures.New(features.AllFeatures)}
}

// Validate implements Validator.
func (p nodeFeatures) Validate(ctx context.Context, a *Attributes) error {
	pod, old, ok := a.changedPod("", "resize")
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	needed, err := p.framework.InferForPodUpdate(&featuretypes.PodInfo{Spec: &old.Spec, Status: &old.Status}, &featuretypes.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, apiVersion)
	if err != nil {
		return a.forbid(fmt.Errorf("failed to infer pod feature requirements: %w", err))
	}
	if needed.IsEmpty() {
		return nil
	}
	node, err := a.nodeOf(ctx, p.nodes, pod)
	if err != nil {
		return err
	}
	match, err := p.framework.MatchNode(needed, node)
	if err != nil {
		return a.forbid(fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err))
	}
	if match.IsMatch {
		return nil
	}
	return a.forbid(fmt.Errorf("pod update requires features %s which are not available on node %q", strings.Join(match.UnsatisfiedRequirements, ", "), node.Name))
}

// podResize refuses a resize beyond the capacity of the pod's node (KEP-1287).
type podResize struct {
	base
	nodes *client.Lazy[*corev1.Node]
}

func newPodResize(nodes *client.Lazy[*corev1.Node]) Plugin {
	return podResize{base{"PodResizeValidator", []Operation{Update}}, nodes}
}

// Validate implements Validator.
func (p podResize) Validate(ctx context.Context, a *Attributes) error {
	pod, old, ok := a.changedPod("resize")
	if !ok || pod.Spec.NodeName == "" || sameResources(pod, old) {
		return nil
	}
	node, err := a.nodeOf(ctx, p.nodes, pod)
	if err != nil {
		return err
	}
	if system := node.Labels[corev1.LabelOSStable]; system != "" && system != string(corev1.Linux) {
		return a.forbidBecause("UnsupportedPlatform", fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system))
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var lacking []string
	lacks := func(name corev1.ResourceName, requested, allocatable int64) {
		if requested > allocatable {
			lacking = append(lacking, fmt.Sprintf("%s, requested: %d, allocatable: %d", name, requested, allocatable))
		}
	}
	lacks(corev1.ResourceCPU, requests.Cpu().MilliValue(), node.Status.Allocatable.Cpu().MilliValue())
	lacks(corev1.ResourceMemory, requests.Memory().Value(), node.Status.Allocatable.Memory().Value())
	if len(lacking) == 0 {
		return nil
	}
	return a.forbidBecause("NodeCapacity", fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(lacking, "; ")))
}

func sameResources(a, b *corev1.Pod) bool {
	same := func(x, y []corev1.Container) bool {
		for i := range x {
			if i >= len(y) || !equality.Semantic.DeepEqual(x[i].Resources, y[i].Resources) {
				return false
			}
		}
		return true
	}
	return same(a.Spec.Containers, b.Spec.Containers) && same(a.Spec.InitContainers, b.Spec.InitContainers) &&
		equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources)
}

// changedPod returns the pod before and after an update of it or of one of the subresources.
func (a *Attributes) changedPod(subresources ...string) (pod, old *corev1.Pod, ok bool) {
	for _, sub := range subresources {
		if !a.is("", "pods", sub) {
			continue
		}
		pod, ok = a.Object.(*corev1.Pod)
		old, have := a.OldObject.(*corev1.Pod)
		return pod, old, ok && have
	}
	return nil, nil, false
}

// nodeOf returns the node of a pod.
func (a *Attributes) nodeOf(ctx context.Context, nodes *client.Lazy[*corev1.Node], pod *corev1.Pod) (*corev1.Node, error) {
	node, err := nodes.Find(ctx, "", pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil, a.forbid(fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	return node, err
}

// forbidBecause is forbid with a machine-readable cause.
func (a *Attributes) forbidBecause(cause metav1.CauseType, err error) error {
	refused := a.Forbidden(err)
	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	return refused
}

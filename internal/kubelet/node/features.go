package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	declared "k8s.io/component-helpers/nodedeclaredfeatures"
	declaredtypes "k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/knarr-project/knarr/internal/version"
)

// declaredFeatures are the optional features of this node agent (KEP-5328), sorted. The scheduler
// keeps pods that need other features away; the API server refuses such changes of pods.
var declaredFeatures = []string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
	"RestartAllContainersOnContainerExits"}

var kubernetesVersion = utilversion.MustParseSemantic(version.Kubernetes)

// MissingFeatures returns the features that the pod needs and this node agent does not have.
func MissingFeatures(pod *corev1.Pod) []string {
	needed, err := declared.DefaultFramework.InferForPodScheduling(&declaredtypes.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, kubernetesVersion)
	if err != nil || needed.IsEmpty() {
		return nil // the only possible error is a missing version
	}
	names, _ := declared.DefaultFramework.Unmap(needed) // the set is of this registry
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(declaredFeatures, name) })
}

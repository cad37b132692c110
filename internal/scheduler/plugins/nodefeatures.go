package plugins

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	declared "k8s.io/component-helpers/nodedeclaredfeatures"
	declaredtypes "k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/version"
)

// nodeFeatures refuses nodes whose kubelet does not declare an optional feature that the pod needs
// (KEP-5328).
type nodeFeatures struct{ plugin }

// kubernetesVersion decides which features are still optional.
var kubernetesVersion = utilversion.MustParseSemantic(version.Kubernetes)

func (p nodeFeatures) PreFilter(state framework.State, pod *framework.PodInfo, _ *framework.Snapshot) (sets.Set[string], *framework.Status) {
	needed, err := declared.DefaultFramework.InferForPodScheduling(&declaredtypes.PodInfo{Spec: &pod.Pod.Spec}, kubernetesVersion)
	if err != nil {
		return nil, framework.Fail(err)
	}
	if needed.IsEmpty() {
		return nil, &framework.Status{Code: framework.Skip}
	}
	names, err := declared.DefaultFramework.Unmap(needed)
	if err != nil {
		return nil, framework.Fail(err)
	}
	state[p.Name()] = names
	return nil, nil
}

func (p nodeFeatures) Filter(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	for _, name := range state[p.Name()].([]string) {
		if !slices.Contains(node.Node.Status.DeclaredFeatures, name) {
			return framework.RefuseAlways("node(s) didn't match Pod's required features")
		}
	}
	return nil
}

func (nodeFeatures) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeFeatures | framework.SelfChanged
}

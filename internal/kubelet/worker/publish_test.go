package worker

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
)

func TestAReplacedContainerIsForgottenOnceItsSuccessorHasBeen(t *testing.T) {
	container := func(id string, attempt uint32, state runtimeapi.ContainerState) *pleg.Container {
		return &pleg.Container{ContainerStatus: &runtimeapi.ContainerStatus{Id: id, State: state, Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: attempt}}}
	}
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for name, tc := range map[string]struct {
		containers      []*pleg.Container
		troubled        bool
		replacing, kept bool
	}{
		"it still runs":                     {containers: []*pleg.Container{container("old", 0, running)}, kept: true},
		"it has ended":                      {containers: []*pleg.Container{container("old", 0, exited)}, replacing: true, kept: true},
		"it has ended, its successor fails": {containers: []*pleg.Container{container("old", 0, exited)}, troubled: true},
		"its successor is made": {containers: []*pleg.Container{container("old", 0, exited), container("new", 1, runtimeapi.ContainerState_CONTAINER_CREATED)},
			replacing: true, kept: true},
		"its successor runs":      {containers: []*pleg.Container{container("old", 0, exited), container("new", 1, running)}},
		"its successor has ended": {containers: []*pleg.Container{container("old", 0, exited), container("new", 1, exited)}},
		"nothing is left":         {},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Worker{observed: &pleg.Observed{Containers: map[string]*pleg.Container{}}, replaced: map[string]string{"c": "old"}, problems: map[string]problem{}}
			for _, c := range tc.containers {
				w.observed.Containers[c.Id] = c
			}
			if tc.troubled {
				w.problems["c"] = problem{}
			}
			if got := w.replacing(); got != tc.replacing {
				t.Errorf("replacing: %v, want %v", got, tc.replacing)
			}
			if _, kept := w.replaced["c"]; kept != tc.kept {
				t.Errorf("kept: %v, want %v", kept, tc.kept)
			}
		})
	}
}

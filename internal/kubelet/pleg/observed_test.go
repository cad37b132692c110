package pleg

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func container(id string, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, State: state}
}

func listing(asked time.Time, containers ...*runtimeapi.ContainerStatus) Update {
	return Update{Complete: true, Asked: asked, Containers: containers}
}

// The result must not depend on whether the worker or a listing reports the container first.
func TestAnOlderListingDoesNotRemoveANewerContainer(t *testing.T) {
	created := container("a", runtimeapi.ContainerState_CONTAINER_CREATED)
	sandbox := &runtimeapi.PodSandboxStatus{Id: "s", State: runtimeapi.PodSandboxState_SANDBOX_READY}
	for name, learn := range map[string]func(o *Observed){
		"its worker": func(o *Observed) {
			o.MergeContainer(created, "s", noon)
			o.MergeSandbox(sandbox, noon)
		},
		"the worker, then a listing requested before": func(o *Observed) {
			o.MergeContainer(created, "s", noon)
			o.MergeSandbox(sandbox, noon)
			o.MergeContainer(created, "s", noon.Add(-time.Minute))
			o.MergeSandbox(sandbox, noon.Add(-time.Minute))
		},
		"a listing requested before, then the worker": func(o *Observed) {
			o.MergeContainer(created, "s", noon.Add(-time.Minute))
			o.MergeSandbox(sandbox, noon.Add(-time.Minute))
			o.MergeContainer(created, "s", noon)
			o.MergeSandbox(sandbox, noon)
		},
		"a listing in which it runs already, then the worker": func(o *Observed) {
			o.MergeContainer(container("a", runtimeapi.ContainerState_CONTAINER_RUNNING), "s", noon.Add(-time.Minute))
			o.MergeSandbox(sandbox, noon.Add(-time.Minute))
			o.MergeContainer(created, "s", noon)
			o.MergeSandbox(sandbox, noon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewObserved()
			learn(o)
			if o.Merge(listing(noon.Add(-time.Second))); o.Containers["a"] == nil || o.Sandboxes["s"] == nil {
				t.Error("an earlier listing removed the container")
			}
			if o.Merge(listing(noon.Add(time.Second))); o.Containers["a"] != nil || o.Sandboxes["s"] != nil {
				t.Error("a later listing lacks the container")
			}
		})
	}
}

func TestRecentlyRemovedContainersDoNotComeBack(t *testing.T) {
	o := NewObserved()
	o.MergeContainer(container("a", runtimeapi.ContainerState_CONTAINER_RUNNING), "s", noon)
	o.Remove("a", noon)
	if o.Merge(listing(noon.Add(-time.Second), container("a", runtimeapi.ContainerState_CONTAINER_RUNNING))) || o.Containers["a"] != nil {
		t.Error("an earlier listing brought the container back")
	}
}

// Each attempt is a container of its own, whose id must not be remembered forever.
func TestIDsOfRemovedContainersAreForgotten(t *testing.T) {
	o := NewObserved()
	for i := range 1000 {
		id, now := fmt.Sprint(i), noon.Add(time.Duration(i)*5*time.Minute)
		o.MergeContainer(container(id, runtimeapi.ContainerState_CONTAINER_EXITED), "s", now)
		o.Remove(id, now)
	}
	if n := len(o.removed); n > 20 {
		t.Errorf("%d ids are remembered of an hour with twelve", n)
	}
}

package worker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// idsPerPod is the length of each pod's range of host ids (KEP-127).
const idsPerPod = 65536

// UserNamespaces allocates ranges of host user ids to pods with hostUsers: false. A pod's range is
// written to its folder, so that the pod keeps it across restarts of the node agent. Safe for
// concurrent use.
type UserNamespaces struct {
	RootDir string
	// First is the first host id of the ranges; Count is the number of ranges.
	First, Count uint32
	// PerPod is the length of each range; 0 selects 65536.
	PerPod uint32

	mu    sync.Mutex
	taken map[types.UID]uint32
}

// mapsUsers reports whether the pod has a user namespace of its own.
func mapsUsers(pod *corev1.Pod) bool {
	return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
}

// Of returns the pod's mapping; nil if the pod uses the host's users.
func (u *UserNamespaces) Of(pod *corev1.Pod) (*runtimeapi.UserNamespace, error) {
	if !mapsUsers(pod) {
		return nil, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.taken == nil {
		u.load()
	}
	index, ok := u.taken[pod.UID]
	if !ok {
		used := map[uint32]bool{}
		for _, i := range u.taken {
			used[i] = true
		}
		for used[index] {
			index++
		}
		if index >= u.Count {
			return nil, fmt.Errorf("no range of user ids is free for the pod's user namespace: all %d are taken", u.Count)
		}
		dir := spec.PodDir(u.RootDir, pod.UID)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
		raw, _ := json.Marshal(index)
		if err := os.WriteFile(filepath.Join(dir, "userns"), raw, 0o600); err != nil {
			return nil, err
		}
		u.taken[pod.UID] = index
	}
	perPod := cmp.Or(u.PerPod, idsPerPod)
	ids := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{ContainerId: 0, HostId: u.First + index*perPod, Length: perPod}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids(), Gids: ids()}, nil
}

// Release releases the pod's range.
func (u *UserNamespaces) Release(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.taken, uid)
	_ = os.Remove(filepath.Join(spec.PodDir(u.RootDir, uid), "userns"))
}

func (u *UserNamespaces) load() {
	u.taken = map[types.UID]uint32{}
	files, _ := filepath.Glob(filepath.Join(u.RootDir, "pods", "*", "userns"))
	for _, f := range files {
		var index uint32
		if raw, err := os.ReadFile(f); err == nil && json.Unmarshal(raw, &index) == nil {
			u.taken[types.UID(filepath.Base(filepath.Dir(f)))] = index
		}
	}
}

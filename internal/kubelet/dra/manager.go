package dra

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/checkpoint"
)

// checkpointName is upstream's name. The content is our own.
const checkpointName = "dra_manager_state"

// wipeDelay is how long a driver may be gone before its ResourceSlices are removed, as upstream.
const wipeDelay = 30 * time.Second

// Config configures a Manager.
type Config struct {
	Client   client.Interface
	NodeName string
	// Dir holds the checkpoint.
	Dir string
	// Touched is called with the pods whose devices have changed their health.
	Touched func([]types.UID)
	// WipeDelay is how long a driver may be gone; default 30 s.
	WipeDelay time.Duration
	Log       *slog.Logger
}

// Manager prepares the devices of claims. It is safe for concurrent use.
type Manager struct {
	Config

	// mu guards the fields below. It is not held during calls of drivers.
	mu      sync.Mutex
	claims  map[types.UID]*claimState
	drivers map[string][]*driver // the newest one is last
	absent  map[string]context.CancelFunc
	health  map[deviceKey]deviceHealth

	saving sync.Mutex
}

// claimState is a claim that is or may be prepared.
type claimState struct {
	// op is held during calls of drivers about the claim.
	op sync.Mutex

	// Manager.mu guards the fields below.
	uid             types.UID
	namespace, name string
	pods            map[types.UID]bool
	// drivers maps each driver of the allocation to its prepared devices.
	drivers map[string][]Device
	// prepared means that this process has prepared the claim.
	prepared bool
	gone     bool // removed from Manager.claims
}

// Device is a prepared device.
type Device struct {
	Pool, Device string
	ShareID      string   `json:",omitempty"`
	Requests     []string `json:",omitempty"` // none stands for all requests
	CDI          []string `json:",omitempty"`
}

// New makes a Manager and reads its checkpoint.
func New(c Config) *Manager {
	if c.WipeDelay == 0 {
		c.WipeDelay = wipeDelay
	}
	m := &Manager{
		Config: c, claims: map[types.UID]*claimState{}, drivers: map[string][]*driver{}, absent: map[string]context.CancelFunc{},
		health: map[deviceKey]deviceHealth{},
	}
	m.load()
	return m
}

// saved is a claim in the checkpoint.
type saved struct {
	UID             types.UID
	Namespace, Name string
	Pods            []types.UID
	Drivers         map[string][]Device
}

func (m *Manager) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	list := []saved{}
	m.mu.Lock()
	for _, s := range m.claims {
		one := saved{UID: s.uid, Namespace: s.namespace, Name: s.name, Drivers: map[string][]Device{}}
		for pod := range s.pods {
			one.Pods = append(one.Pods, pod)
		}
		for name, devices := range s.drivers {
			one.Drivers[name] = devices
		}
		list = append(list, one)
	}
	m.mu.Unlock()
	return checkpoint.Write(filepath.Join(m.Dir, checkpointName), list)
}

func (m *Manager) load() {
	path := filepath.Join(m.Dir, checkpointName)
	var list []saved
	err := checkpoint.Read(path, &list)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		m.Log.Error("cannot read the checkpoint of resource claims; it is put aside, and claims of ended pods are not unprepared", "file", path, "error", err)
		if err := os.Rename(path, path+".broken"); err != nil {
			m.Log.Error("cannot put the checkpoint of resource claims aside", "file", path, "error", err)
		}
		return
	}
	for _, s := range list {
		state := &claimState{uid: s.UID, namespace: s.Namespace, name: s.Name, pods: map[types.UID]bool{}, drivers: map[string][]Device{}}
		for _, pod := range s.Pods {
			state.pods[pod] = true
		}
		for name, devices := range s.Drivers {
			state.drivers[name] = devices
		}
		m.claims[s.UID] = state
	}
}

// Used reports whether the pod has claims.
func Used(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// of returns the pod's claims, sorted by UID.
func (m *Manager) of(pod types.UID) []*claimState {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*claimState
	for _, s := range m.claims {
		if s.pods[pod] {
			out = append(out, s)
		}
	}
	sortClaims(out)
	return out
}

// sortClaims gives claims the order in which they are locked.
func sortClaims(list []*claimState) {
	slices.SortFunc(list, func(a, b *claimState) int {
		if a.uid < b.uid {
			return -1
		}
		if a.uid > b.uid {
			return 1
		}
		return 0
	})
}

// Retain unprepares the claims of all pods for which alive returns false. It returns the first
// error; a later call tries again.
func (m *Manager) Retain(ctx context.Context, alive func(types.UID) bool) error {
	m.mu.Lock()
	pods := map[types.UID]bool{}
	for _, s := range m.claims {
		for pod := range s.pods {
			pods[pod] = true
		}
	}
	m.mu.Unlock()
	var errs []error
	for pod := range pods {
		if !alive(pod) {
			errs = append(errs, m.Unprepare(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

// Package framework is what scheduling plugins see: an immutable Snapshot of the cluster, the pod, and the
// extension points of upstream's scheduling framework (KEP-624) as Go interfaces. Everything here is pure; what acts on
// the cluster is in the scheduler package.
//
// The order of a cycle: PreFilter, Filter for each node, (PostFilter when none is left), PreScore, Score for each
// feasible node, NormalizeScore, Reserve, Permit; then the binding cycle: PreBind, Bind, PostBind. Unreserve undoes
// Reserve in reverse order.
package framework

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// MaxNodeScore is the best score that NormalizeScore may leave.
const MaxNodeScore int64 = 100

// Code says what a plugin decided.
type Code int

// Codes have the values of upstream's framework, which the WebAssembly guest ABI uses too.
const (
	Success Code = iota
	Error
	// Unschedulable: not now; removing pods may help.
	Unschedulable
	// UnschedulableAndUnresolvable: removing pods does not help.
	UnschedulableAndUnresolvable
	Wait
	Skip
	Pending
)

// Status is a plugin's answer. A nil Status is Success.
type Status struct {
	Code    Code
	Reasons []string
	Plugin  string
	Err     error
}

// Refuse says that the pod can not run here now.
func Refuse(reasons ...string) *Status { return &Status{Code: Unschedulable, Reasons: reasons} }

// RefuseAlways says that the pod can not run here, whichever pods were removed.
func RefuseAlways(reasons ...string) *Status {
	return &Status{Code: UnschedulableAndUnresolvable, Reasons: reasons}
}

// Fail says that the plugin could not decide.
func Fail(err error) *Status { return &Status{Code: Error, Err: err, Reasons: []string{err.Error()}} }

// OK reports success.
func (s *Status) OK() bool { return s == nil || s.Code == Success }

// Skipped reports that the plugin has nothing to say about the pod.
func (s *Status) Skipped() bool { return s != nil && s.Code == Skip }

// Rejected reports a refusal, as opposed to a failure.
func (s *Status) Rejected() bool {
	return s != nil && (s.Code == Unschedulable || s.Code == UnschedulableAndUnresolvable || s.Code == Pending)
}

func (s *Status) String() string {
	if s == nil {
		return "success"
	}
	return fmt.Sprintf("%s: %v", s.Plugin, s.Reasons)
}

// State carries what a plugin's PreFilter or PreScore computed to its later calls in the same cycle, by plugin name.
type State map[string]any

// Events are the changes that may make an unschedulable pod schedulable.
type Events uint32

const (
	NodeAdded Events = 1 << iota
	NodeAllocatable
	NodeLabels
	NodeTaints
	NodeDeleted
	PodAssigned // a pod was bound to a node, or a bound pod's labels changed
	PodRemoved  // a bound pod ended or was deleted
	PodScaledDown
	SelfChanged // the pod itself was updated
	ClaimChanged
	VolumeChanged
	StorageClassChanged
	CSINodeChanged
	CSIDriverChanged
	CapacityChanged // of storage
	AttachmentRemoved
	ResourceClaimChanged
	DeviceClassChanged
	DevicesChanged
)

// Any is every event.
const Any Events = 1<<31 - 1

// eventNames are upstream's.
var eventNames = map[Events]string{
	NodeAdded:            "NodeAdd",
	NodeAllocatable:      "NodeUpdateNodeAllocatable",
	NodeLabels:           "NodeUpdateNodeLabel",
	NodeTaints:           "NodeUpdateNodeTaint",
	NodeDeleted:          "NodeDelete",
	PodAssigned:          "AssignedPodAdd",
	PodRemoved:           "AssignedPodDelete",
	PodScaledDown:        "AssignedPodUpdatePodScaleDown",
	SelfChanged:          "UnschedulablePodUpdate",
	ClaimChanged:         "PersistentVolumeClaimUpdate",
	VolumeChanged:        "PersistentVolumeUpdate",
	StorageClassChanged:  "StorageClassUpdate",
	CSINodeChanged:       "CSINodeUpdate",
	CSIDriverChanged:     "CSIDriverUpdate",
	CapacityChanged:      "CSIStorageCapacityUpdate",
	AttachmentRemoved:    "VolumeAttachmentDelete",
	ResourceClaimChanged: "ResourceClaimUpdate",
	DeviceClassChanged:   "DeviceClassUpdate",
	DevicesChanged:       "ResourceSliceUpdate",
}

// Name is how metrics call the first of the events.
func (e Events) Name() string {
	if name, ok := eventNames[e&-e]; ok {
		return name
	}
	return "Unknown"
}

// Plugin is what every plugin is.
type Plugin interface {
	Name() string
}

// PreFilterPlugin looks at the pod once a cycle. It may narrow the nodes to a set (nil is all of them), or skip its own Filter.
type PreFilterPlugin interface {
	Plugin
	PreFilter(state State, pod *PodInfo, snapshot *Snapshot) (sets.Set[string], *Status)
}

// FilterPlugin decides about one node.
type FilterPlugin interface {
	Plugin
	Filter(state State, pod *PodInfo, node *NodeInfo) *Status
}

// Requeuer names the events after which a pod that this plugin refused is worth another try.
type Requeuer interface {
	Plugin
	RequeueOn() Events
}

// PreScorePlugin looks at the feasible nodes once a cycle.
type PreScorePlugin interface {
	Plugin
	PreScore(state State, pod *PodInfo, snapshot *Snapshot, nodes []*NodeInfo) *Status
}

// ScorePlugin scores a node, higher is better.
type ScorePlugin interface {
	Plugin
	Score(state State, pod *PodInfo, node *NodeInfo) (int64, *Status)
}

// NormalizePlugin brings scores into 0..MaxNodeScore. Scores are in the order of nodes.
type NormalizePlugin interface {
	ScorePlugin
	Normalize(state State, pod *PodInfo, nodes []*NodeInfo, scores []int64)
}

// ReservePlugin keeps resources for the pod between the decision and the binding. Reserve is called by the scheduler's goroutine before
// the next decision and must not wait; Unreserve may be called by another one. Both are left out when the plugin's PreFilter has skipped.
type ReservePlugin interface {
	Plugin
	Reserve(ctx context.Context, state State, pod *corev1.Pod, nodeName string) *Status
	Unreserve(ctx context.Context, state State, pod *corev1.Pod, nodeName string)
}

// PreBindPlugin does what must be done before the binding is written; it may wait. It is left out when its PreFilter has skipped.
type PreBindPlugin interface {
	Plugin
	PreBind(ctx context.Context, state State, pod *corev1.Pod, nodeName string) *Status
	// PreBindPreFlight tells whether PreBind will have anything to do; then the pod says which node it is to go to while it waits.
	PreBindPreFlight(state State, pod *corev1.Pod, nodeName string) bool
}

// Weighted is a score plugin and its weight in the sum.
type Weighted struct {
	ScorePlugin
	Weight int64
}

// Profile is the plugins of one scheduler name, each list in its order.
type Profile struct {
	SchedulerName string
	PreFilters    []PreFilterPlugin
	Filters       []FilterPlugin
	PreScores     []PreScorePlugin
	Scores        []Weighted
	Reserves      []ReservePlugin
	PreBinds      []PreBindPlugin
}

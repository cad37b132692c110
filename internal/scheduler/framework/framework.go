// Package framework has what scheduling plugins see: an immutable Snapshot of the cluster, the pod,
// and the extension points of upstream's scheduling framework (KEP-624) as Go interfaces.
// Everything here is pure; the scheduler package acts on the cluster.
//
// The order of a cycle: PreFilter, Filter for each node, PostFilter if no node is left, PreScore,
// Score for each feasible node, NormalizeScore, Reserve, Permit. Then the binding cycle: PreBind,
// Bind, PostBind. Unreserve undoes Reserve in reverse order.
package framework

import (
	"context"
	"fmt"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Names of the plugins that act on the cluster; the scheduler package has them.
const (
	DefaultPreemption = "DefaultPreemption"
	DefaultBinder     = "DefaultBinder"
	GangScheduling    = "GangScheduling"
)

// MaxNodeScore is the highest score after NormalizeScore.
const MaxNodeScore int64 = 100

// Code is the kind of a plugin's answer.
type Code int

// The codes have the values of upstream's framework. The ABI for WebAssembly guests uses them too.
const (
	Success Code = iota
	Error
	// Unschedulable means not now: removing pods may help.
	Unschedulable
	// UnschedulableAndUnresolvable means that removing pods does not help.
	UnschedulableAndUnresolvable
	Wait
	Skip
	Pending
)

// Status is a plugin's answer. A nil Status is Success. Plugins may return the same one repeatedly,
// so it must not be changed; an empty Plugin means the plugin that returned it.
type Status struct {
	Code    Code
	Reasons []string
	Plugin  string
	Err     error
}

// Refuse makes a refusal that may end when pods are removed.
func Refuse(reasons ...string) *Status { return &Status{Code: Unschedulable, Reasons: reasons} }

// RefuseAlways makes a refusal that does not depend on other pods.
func RefuseAlways(reasons ...string) *Status {
	return &Status{Code: UnschedulableAndUnresolvable, Reasons: reasons}
}

// Fail makes the status of a plugin that could not decide.
func Fail(err error) *Status { return &Status{Code: Error, Err: err, Reasons: []string{err.Error()}} }

// OK reports success.
func (s *Status) OK() bool { return s == nil || s.Code == Success }

// Skipped reports that the plugin does not apply to the pod.
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

// State has the results of the plugins' PreFilter and PreScore for their later calls in the same
// cycle, by the plugin's name.
type State map[string]any

// Events are the changes that may make an unschedulable pod schedulable.
type Events uint32

const (
	NodeAdded Events = 1 << iota
	NodeAllocatable
	NodeLabels
	NodeTaints
	NodeDeleted
	PodAssigned // a pod was bound, or a bound pod's labels changed
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
	NodeFeatures // the features that a node's kubelet declares
	GroupChanged // a PodGroup, or a pod of one, was created
)

// Any means every event.
const Any Events = 1<<31 - 1

// eventNames has upstream's names.
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
	NodeFeatures:         "NodeUpdateNodeDeclaredFeature",
	GroupChanged:         "PodGroupAdd",
}

// Name returns the first event's name in metrics.
func (e Events) Name() string {
	if name, ok := eventNames[e&-e]; ok {
		return name
	}
	return "Unknown"
}

// Plugin is the part that all plugins share.
type Plugin interface {
	Name() string
}

// PreFilterPlugin examines the pod once in a cycle. It may restrict the nodes to a set (nil allows
// all), or skip its own Filter.
type PreFilterPlugin interface {
	Plugin
	PreFilter(state State, pod *PodInfo, snapshot *Snapshot) (sets.Set[string], *Status)
}

// TrialPlugin is a PreFilterPlugin that hears what a trial changes on a node, such as preemption
// without its victims. The calls follow PreFilter, whose snapshot has the changes already.
type TrialPlugin interface {
	PreFilterPlugin
	AddPod(state State, pod, added *PodInfo, node *NodeInfo) *Status
	RemovePod(state State, pod, removed *PodInfo, node *NodeInfo) *Status
}

// FilterPlugin decides about one node.
type FilterPlugin interface {
	Plugin
	Filter(state State, pod *PodInfo, node *NodeInfo) *Status
}

// Requeuer names the events after which a refused pod may fit.
type Requeuer interface {
	Plugin
	RequeueOn() Events
}

// Hinter looks at a change before it wakes a pod that the plugin has refused.
type Hinter interface {
	Requeuer
	// Helps reports whether the change, which is one of RequeueOn, may end the refusal.
	Helps(pod *PodInfo, change *Change) bool
}

// PreScorePlugin examines the feasible nodes once in a cycle. It must not keep the slice.
type PreScorePlugin interface {
	Plugin
	PreScore(state State, pod *PodInfo, snapshot *Snapshot, nodes []*NodeInfo) *Status
}

// ScorePlugin scores a node; higher is better.
type ScorePlugin interface {
	Plugin
	Score(state State, pod *PodInfo, node *NodeInfo) (int64, *Status)
}

// NormalizePlugin scales scores to 0..MaxNodeScore. Scores are in the order of nodes.
type NormalizePlugin interface {
	ScorePlugin
	Normalize(state State, pod *PodInfo, nodes []*NodeInfo, scores []int64)
}

// LocalPlugin is a plugin whose answers about a node depend on nothing but the NodeInfo and what
// AppendKey appends: the pod's fields that it reads, and facts of the cluster that are the same for
// all nodes. This holds for PreFilter, Filter, PreScore and Score. Pods with the same keys form a
// class, and the scheduler keeps the answers for a class until the node changes. PreScore must not
// look at its nodes, and Normalize at nothing but the scores.
type LocalPlugin interface {
	Plugin
	AppendKey(key []byte, pod *PodInfo, snapshot *Snapshot) []byte
}

// ReservePlugin reserves resources for the pod between the decision and the binding. The
// scheduler's goroutine calls Reserve before the next decision, so it must not wait. Any goroutine
// may call Unreserve. Neither is called if the plugin's PreFilter has skipped.
type ReservePlugin interface {
	Plugin
	Reserve(ctx context.Context, state State, pod *corev1.Pod, nodeName string) *Status
	Unreserve(ctx context.Context, state State, pod *corev1.Pod, nodeName string)
}

// PreBindPlugin prepares the binding before it is written; it may wait. It is not called if the
// plugin's PreFilter has skipped.
type PreBindPlugin interface {
	Plugin
	PreBind(ctx context.Context, state State, pod *corev1.Pod, nodeName string) *Status
	// PreBindPreFlight reports whether PreBind has anything to do. If so, the pod's status names
	// the node while it waits.
	PreBindPreFlight(state State, pod *corev1.Pod, nodeName string) bool
}

// PreEnqueuePlugin decides whether a pod may enter the active queue. A refused pod waits until one
// of the plugin's events, or a change of the pod.
type PreEnqueuePlugin interface {
	Plugin
	PreEnqueue(ctx context.Context, pod *corev1.Pod) *Status
}

// QueueSortPlugin orders the active queue. All profiles share one, since they share the queue.
type QueueSortPlugin interface {
	Plugin
	Less(a, b *QueuedPod) bool
}

// QueuedPod is what a QueueSortPlugin sees of a pod.
type QueuedPod struct {
	Pod *PodInfo
	// Since is when the pod was queued; a retry does not change it.
	Since time.Time
	// Attempts counts the decisions so far.
	Attempts int
}

// Refusals has the refusals of a decision by the name of the node.
type Refusals interface {
	// Of returns nil for a node that was not refused.
	Of(node string) *Status
	All() iter.Seq2[string, *Status]
}

// PostFilterPlugin tries to make a refused pod schedulable, as preemption does. It returns the name
// of the node that it nominates. Empty nominates none.
type PostFilterPlugin interface {
	Plugin
	PostFilter(ctx context.Context, state State, pod *PodInfo, snapshot *Snapshot, refusals Refusals) (string, *Status)
}

// PermitPlugin lets a decided pod go on, refuses it, or lets it wait (the code Wait) for at most
// the returned time. While a pod waits, its resources count on its node.
type PermitPlugin interface {
	Plugin
	Permit(ctx context.Context, state State, pod *corev1.Pod, nodeName string) (*Status, time.Duration)
}

// BindPlugin writes the binding. The code Skip leaves it to the next BindPlugin.
type BindPlugin interface {
	Plugin
	Bind(ctx context.Context, state State, pod *corev1.Pod, nodeName string) *Status
}

// PostBindPlugin hears of a written binding.
type PostBindPlugin interface {
	Plugin
	PostBind(ctx context.Context, state State, pod *corev1.Pod, nodeName string)
}

// Weighted is a score plugin with its weight in the sum.
type Weighted struct {
	ScorePlugin
	Weight int64
}

// Profile has the plugins of one scheduler name, each list in its order.
type Profile struct {
	SchedulerName string
	// PercentageOfNodesToScore is the share of the nodes that is enough to find; 0 means upstream's
	// share, which falls with the size of the cluster.
	PercentageOfNodesToScore int32
	// QueueSort orders the queue. It is the same in all profiles; nil means PrioritySort.
	QueueSort   QueueSortPlugin
	PreEnqueues []PreEnqueuePlugin
	PreFilters  []PreFilterPlugin
	Filters     []FilterPlugin
	PostFilters []PostFilterPlugin
	PreScores   []PreScorePlugin
	Scores      []Weighted
	Reserves    []ReservePlugin
	Permits     []PermitPlugin
	PreBinds    []PreBindPlugin
	Binds       []BindPlugin
	PostBinds   []PostBindPlugin
}

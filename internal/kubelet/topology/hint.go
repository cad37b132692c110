package topology

import (
	"fmt"
	"math/bits"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaxNode is the highest id of a NUMA node that a NodeSet can hold.
const MaxNode = 63

// NodeSet is a set of NUMA node ids from 0 to MaxNode. The zero value is empty.
type NodeSet uint64

// Nodes returns the set of these ids. It ignores ids outside 0 to MaxNode.
func Nodes(ids ...int) NodeSet {
	var s NodeSet
	for _, id := range ids {
		if id >= 0 && id <= MaxNode {
			s |= 1 << id
		}
	}
	return s
}

// Len is the number of nodes in the set.
func (s NodeSet) Len() int { return bits.OnesCount64(uint64(s)) }

// Has reports whether the node is in the set.
func (s NodeSet) Has(id int) bool { return id >= 0 && id <= MaxNode && s&(1<<id) != 0 }

// IDs lists the nodes in ascending order.
func (s NodeSet) IDs() []int {
	ids := make([]int, 0, s.Len())
	for rest := uint64(s); rest != 0; rest &= rest - 1 {
		ids = append(ids, bits.TrailingZeros64(rest))
	}
	return ids
}

// Subsets calls fn with every non-empty subset of s, in ascending order of its value.
func (s NodeSet) Subsets(fn func(NodeSet)) {
	for sub := (0 - s) & s; sub != 0; sub = (sub - s) & s {
		fn(sub)
	}
}

func (s NodeSet) String() string {
	var b strings.Builder
	for i, id := range s.IDs() {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, id)
	}
	return b.String()
}

// Hint is a set of NUMA nodes that can give a container its share of one resource.
type Hint struct {
	// Nodes is the set of nodes. Empty means that any node will do.
	Nodes NodeSet
	// Preferred means that the resource cannot come from fewer nodes, even on an empty machine.
	Preferred bool
}

// Any is the hint of a resource that does not care about NUMA nodes.
var Any = Hint{Preferred: true}

// Hints maps the name of a resource to its hints. A resource with a nil list has no preference; a
// resource with an empty list cannot be given at all. A provider without preferences returns nil.
type Hints map[string][]Hint

// Provider manages one kind of resource. It is called from one goroutine at a time.
type Provider interface {
	// Hints returns the hints for one container (scope "container").
	Hints(pod *corev1.Pod, c *corev1.Container) Hints
	// PodHints returns the hints for all containers of the pod together (scope "pod").
	PodHints(pod *corev1.Pod) Hints
	// Allocate gives the container its resources, from the nodes of the affinity if possible. It
	// does nothing for a container that already has them. An error refuses the pod; a *Refusal
	// sets the reason, any other error means UnexpectedAdmissionError.
	Allocate(pod *corev1.Pod, c *corev1.Container, affinity Hint) error
	// Release takes back everything that the pod has. The pod may be unknown to the provider.
	Release(pod types.UID)
	// Pods lists the pods that have something, also those from before a restart of the node agent.
	Pods() []types.UID
}

// Refusal explains why the node cannot run a pod.
type Refusal struct {
	// Reason and Message are those of the failed pod's status.
	Reason, Message string
}

func (r *Refusal) Error() string { return r.Message }

// Reasons of refused pods.
const (
	ReasonAffinity   = "TopologyAffinityError"
	ReasonUnexpected = "UnexpectedAdmissionError"
)

package scheduler

import (
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Refusals has the refusal of each node that was looked at and does not fit.
type Refusals struct {
	snapshot *framework.Snapshot
	list     []refusedNode
	byNode   map[int]*framework.Status // of list; made by the first Of
	// allowed are the nodes that PreFilter plugins allow; nil allows all. The others share
	// excluded.
	allowed sets.Set[string]
	// whole is the refusal of all nodes; nil if each has its own.
	whole *framework.Status
}

type refusedNode struct {
	node   int // index in the snapshot
	status *framework.Status
}

// excluded is the refusal of a node that PreFilter plugins exclude.
var excluded = &framework.Status{
	Code: framework.UnschedulableAndUnresolvable, Plugin: "NodeAffinity",
	Reasons: []string{"node(s) didn't satisfy plugin(s) [NodeAffinity]"},
}

// excludedEverywhere is the refusal of all nodes if the plugins together allow none.
func excludedEverywhere(plugins []string) *framework.Status {
	reason := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", slices.Sorted(slices.Values(plugins)))
	if len(plugins) == 1 {
		reason = "node(s) didn't satisfy plugin " + plugins[0]
	}
	return &framework.Status{Code: framework.UnschedulableAndUnresolvable, Plugin: plugins[0], Reasons: []string{reason}}
}

func (r *Refusals) add(node int, status *framework.Status) {
	r.list = append(r.list, refusedNode{node, status})
}

// Len returns the number of refused nodes.
func (r *Refusals) Len() int {
	if r.whole != nil {
		return r.snapshot.Nodes.Len()
	}
	n := len(r.list)
	if r.allowed != nil {
		n += r.snapshot.Nodes.Len() - r.known()
	}
	return n
}

// known counts the allowed nodes that exist.
func (r *Refusals) known() (n int) {
	for name := range r.allowed {
		if _, ok := r.snapshot.IndexOf(name); ok {
			n++
		}
	}
	return n
}

// All yields the refused nodes by name.
func (r *Refusals) All() iter.Seq2[string, *framework.Status] {
	return func(yield func(string, *framework.Status) bool) {
		if r.whole != nil {
			for _, n := range r.snapshot.Nodes.All() {
				if !yield(n.Name(), r.whole) {
					return
				}
			}
			return
		}
		for _, x := range r.list {
			if !yield(r.snapshot.Nodes.At(x.node).Name(), x.status) {
				return
			}
		}
		if r.allowed == nil {
			return
		}
		for _, n := range r.snapshot.Nodes.All() {
			if !r.allowed.Has(n.Name()) && !yield(n.Name(), excluded) {
				return
			}
		}
	}
}

// Map returns the refusals by the name of the node.
func (r *Refusals) Map() map[string]*framework.Status {
	out := make(map[string]*framework.Status, r.Len())
	for name, status := range r.All() {
		out[name] = status
	}
	return out
}

// Of returns the refusal of the node with this name; nil if it was not refused.
func (r *Refusals) Of(name string) *framework.Status {
	if i, ok := r.index(name); ok {
		return r.at(i)
	}
	return nil
}

func (r *Refusals) index(name string) (int, bool) {
	if r.snapshot == nil {
		return 0, false
	}
	return r.snapshot.IndexOf(name)
}

// at returns the refusal of the node with this index.
func (r *Refusals) at(i int) *framework.Status {
	if r.whole != nil {
		return r.whole
	}
	if r.allowed != nil && !r.allowed.Has(r.snapshot.Nodes.At(i).Name()) {
		return excluded
	}
	if r.byNode == nil {
		r.byNode = make(map[int]*framework.Status, len(r.list))
		for _, x := range r.list {
			r.byNode[x.node] = x.status
		}
	}
	return r.byNode[i]
}

// counts returns the number of nodes by their refusal. Many nodes share one.
func (r *Refusals) counts() map[*framework.Status]int {
	out := map[*framework.Status]int{}
	var last *framework.Status
	run := 0
	for _, x := range r.list {
		if x.status != last {
			if run > 0 {
				out[last] += run
			}
			last, run = x.status, 0
		}
		run++
	}
	if run > 0 {
		out[last] += run
	}
	if r.allowed != nil {
		if n := r.snapshot.Nodes.Len() - r.known(); n > 0 {
			out[excluded] += n
		}
	}
	return out
}

package topology

import (
	"maps"
	"slices"
)

// merger merges the hints of all resources into the affinity of a container.
type merger struct {
	all  NodeSet
	near distances // nil: the distance of nodes does not count
}

// distances maps two nodes to their distance in the kernel's unit (10 is the node itself).
type distances map[int]map[int]int

// average is the mean distance between the nodes of the set, counting each node to itself too.
func (d distances) average(s NodeSet) float64 {
	sum, count := 0, 0
	for _, a := range s.IDs() {
		for _, b := range s.IDs() {
			sum += d[a][b]
			count++
		}
	}
	return float64(sum) / float64(max(count, 1))
}

// flatten returns one list of hints for each resource.
func flatten(all []Hints) [][]Hint {
	var lists [][]Hint
	for _, hints := range all {
		if len(hints) == 0 {
			lists = append(lists, []Hint{Any})
		}
		for _, resource := range slices.Sorted(maps.Keys(hints)) {
			list := hints[resource]
			switch {
			case list == nil:
				list = []Hint{Any}
			case len(list) == 0:
				list = []Hint{{}} // the resource cannot be given
			}
			lists = append(lists, list)
		}
	}
	return lists
}

// choice is one way to pick a hint for each of the resources seen so far.
type choice struct {
	nodes NodeSet // the nodes that all hints share
	first NodeSet // the nodes of the first hint with nodes; empty if there is none
	// preferred means that each hint is preferred, and that all hints with nodes are equal.
	preferred bool
}

// merge picks one hint for each resource, so that the common nodes are best. With no hints, and if
// no pick has a common node, the result is all nodes, not preferred.
//
// The number of picks is the product of the lists' lengths. But picks of the same choice are equal
// for what follows, and there are at most a few per subset of the nodes. So merge extends the set
// of choices by one list after the other.
func (m merger) merge(lists [][]Hint) Hint {
	choices := map[choice]bool{{nodes: m.all, preferred: true}: true}
	for _, list := range lists {
		next := map[choice]bool{}
		for c := range choices {
			for _, h := range list {
				if n := c.with(h); n.nodes != 0 {
					next[n] = true
				}
			}
		}
		choices = next
	}
	want := demand(lists)
	best := Hint{}
	for c := range choices {
		if h := (Hint{Nodes: c.nodes, Preferred: c.preferred}); best.Nodes == 0 || m.better(h, best, want) {
			best = h
		}
	}
	if best.Nodes == 0 {
		return Hint{Nodes: m.all}
	}
	return best
}

// with adds one more hint to the choice.
func (c choice) with(h Hint) choice {
	c.preferred = c.preferred && h.Preferred
	if h.Nodes == 0 {
		return c
	}
	if c.first == 0 {
		c.first = h.Nodes
	}
	c.preferred = c.preferred && h.Nodes == c.first
	c.nodes &= h.Nodes
	return c
}

// demand is the number of nodes that the most demanding resource needs.
func demand(lists [][]Hint) int {
	want := 0
	for _, list := range lists {
		least := 0
		for _, h := range list {
			if n := h.Nodes.Len(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		want = max(want, least)
	}
	return want
}

// better reports whether a is a better affinity than b. A preferred one beats any other. Among
// preferred ones, fewer nodes are better. Among the others, the number of nodes should meet the
// demand: fewer nodes than that are better than more, and the closer the better.
func (m merger) better(a, b Hint, want int) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	na, nb := a.Nodes.Len(), b.Nodes.Len()
	if !a.Preferred && na != nb {
		if over := na > want; over != (nb > want) {
			return !over
		} else if !over {
			return na > nb
		}
	}
	if na != nb {
		return na < nb
	}
	if m.near != nil {
		if da, db := m.near.average(a.Nodes), m.near.average(b.Nodes); da != db {
			return da < db
		}
	}
	return a.Nodes < b.Nodes
}

// decide merges the hints for one policy. It returns the affinity, and whether the policy admits
// the container.
func (m merger) decide(policy string, all []Hints) (affinity Hint, admit bool) {
	lists := flatten(all)
	switch policy {
	case PolicyBestEffort:
		return m.merge(lists), true
	case PolicyRestricted:
		h := m.merge(lists)
		return h, h.Preferred
	case PolicySingleNUMANode:
		h := m.merge(single(lists))
		if h.Nodes == m.all {
			h.Nodes = 0 // no resource asked for a node
		}
		return h, h.Preferred
	}
	return Hint{}, true
}

// single keeps the preferred hints with one node, and those of resources without a preference.
func single(lists [][]Hint) [][]Hint {
	out := make([][]Hint, len(lists))
	for i, list := range lists {
		for _, h := range list {
			if h.Preferred && h.Nodes.Len() <= 1 {
				out[i] = append(out[i], h)
			}
		}
	}
	return out
}

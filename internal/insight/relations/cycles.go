package relations

import "slices"

// Cycles returns the sets of components that depend on each other in a circle, sorted.
func (g *Graph) Cycles() [][]ID {
	next := map[ID][]ID{}
	for _, r := range g.Relations {
		next[r.From] = append(next[r.From], r.To)
	}
	s := strong{next: next, index: map[ID]int{}, low: map[ID]int{}, on: map[ID]bool{}}
	for i := range g.Components {
		if id := g.Components[i].ID; s.index[id] == 0 {
			s.visit(id)
		}
	}
	var out [][]ID
	for _, set := range s.sets {
		if len(set) > 1 {
			slices.SortFunc(set, compareID)
			out = append(out, set)
		}
	}
	slices.SortFunc(out, func(a, b []ID) int { return compareID(a[0], b[0]) })
	return out
}

// strong finds strongly connected components (Tarjan 1972).
type strong struct {
	next  map[ID][]ID
	index map[ID]int // order of the first visit, from 1
	low   map[ID]int
	stack []ID
	on    map[ID]bool
	sets  [][]ID
}

func (s *strong) visit(id ID) {
	s.index[id] = len(s.index) + 1
	s.low[id] = s.index[id]
	s.stack, s.on[id] = append(s.stack, id), true
	for _, to := range s.next[id] {
		if s.index[to] == 0 {
			s.visit(to)
			s.low[id] = min(s.low[id], s.low[to])
		} else if s.on[to] {
			s.low[id] = min(s.low[id], s.index[to])
		}
	}
	if s.low[id] != s.index[id] {
		return
	}
	from := slices.Index(s.stack, id)
	set := slices.Clone(s.stack[from:])
	s.stack = s.stack[:from]
	for _, one := range set {
		s.on[one] = false
	}
	s.sets = append(s.sets, set)
}

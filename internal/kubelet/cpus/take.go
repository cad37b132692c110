package cpus

import (
	"cmp"
	"slices"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

// taker chooses CPUs by the layout of the machine.
type taker struct {
	layout *machine.Layout
	options
}

// group is a part of the machine and its free CPUs.
type group struct {
	id   int
	free machine.CPUSet
	size int // with CPUs that are not free
}

// groups divides the free CPUs by a property such as the socket, in ascending order of its value.
func (t taker) groups(free machine.CPUSet, of func(machine.CPU) int) []group {
	byID := map[int][]int{}
	size := map[int]int{}
	for id, c := range t.layout.CPUs {
		size[of(c)]++
		if free.Has(id) {
			byID[of(c)] = append(byID[of(c)], id)
		}
	}
	var out []group
	for id, list := range byID {
		out = append(out, group{id, machine.CPUs(list...), size[id]})
	}
	slices.SortFunc(out, func(a, b group) int { return cmp.Compare(a.id, b.id) })
	return out
}

func socketOf(c machine.CPU) int { return c.Socket }
func nodeOf(c machine.CPU) int   { return c.Node }
func cacheOf(c machine.CPU) int  { return c.Cache }
func coreOf(c machine.CPU) int   { return c.Core }

// threads is the number of CPUs of the largest core.
func (t taker) threads() int {
	most := 1
	for _, g := range t.groups(t.layout.All(), coreOf) {
		most = max(most, g.size)
	}
	return most
}

// take chooses n of the free CPUs. It returns false if there are not enough.
//
// The CPUs come from the smallest part of the machine that has enough: an uncore cache (with
// prefer-align-cpus-by-uncorecache), a NUMA node, a socket. Of several such parts, the one with the
// fewest free CPUs keeps the others whole. Within a part, whole cores go first, and what is left
// comes from cores that are already in use.
func (t taker) take(free machine.CPUSet, n int) (machine.CPUSet, bool) {
	if n == 0 {
		return machine.CPUSet{}, true
	}
	if free.Len() < n {
		return machine.CPUSet{}, false
	}
	if t.acrossCores {
		return t.spread(free, n), true
	}
	if t.acrossNodes {
		if set, ok := t.distribute(free, n); ok {
			return set, true
		}
	}
	return t.pack(free, n), true
}

// pack chooses n free CPUs that are close to each other. At least n CPUs must be free.
func (t taker) pack(free machine.CPUSet, n int) machine.CPUSet {
	levels := []func(machine.CPU) int{nodeOf, socketOf}
	if t.alignByCache {
		levels = append([]func(machine.CPU) int{cacheOf}, levels...)
	}
	for _, level := range levels {
		if g, ok := t.smallest(free, level, n); ok {
			return t.cores(g.free, n)
		}
	}
	// No part has enough. Take the part with the most free CPUs, then the rest.
	for i := len(levels) - 1; i >= 0; i-- {
		groups := t.groups(free, levels[i])
		if len(groups) < 2 {
			continue
		}
		most := slices.MaxFunc(groups, func(a, b group) int {
			return cmp.Or(cmp.Compare(a.free.Len(), b.free.Len()), cmp.Compare(b.id, a.id))
		})
		whole := t.usable(most.free)
		if whole.Empty() {
			continue
		}
		return whole.Union(t.pack(free.Minus(whole), n-whole.Len()))
	}
	return t.cores(free, n)
}

// usable is the part of a set that can be taken as a whole: with full-pcpus-only, the whole cores.
func (t taker) usable(free machine.CPUSet) machine.CPUSet {
	if !t.fullCores {
		return free
	}
	return t.wholeCores(free)
}

// wholeCores returns the CPUs of cores that are free as a whole.
func (t taker) wholeCores(free machine.CPUSet) machine.CPUSet {
	var out machine.CPUSet
	for _, g := range t.groups(free, coreOf) {
		if g.free.Len() == g.size {
			out = out.Union(g.free)
		}
	}
	return out
}

// smallest returns the group with the fewest free CPUs that has n.
func (t taker) smallest(free machine.CPUSet, level func(machine.CPU) int, n int) (group, bool) {
	best, found := group{}, false
	for _, g := range t.groups(free, level) {
		if t.usable(g.free).Len() >= n && (!found || g.free.Len() < best.free.Len()) {
			best, found = g, true
		}
	}
	return best, found
}

// cores chooses n of the free CPUs, whole cores first.
func (t taker) cores(free machine.CPUSet, n int) machine.CPUSet {
	var out machine.CPUSet
	groups := t.groups(free, coreOf)
	for _, g := range groups {
		if g.free.Len() == g.size && g.size <= n {
			out, n = out.Union(g.free), n-g.size
		}
	}
	// The rest comes from cores with the fewest free CPUs. Those that are in use go first.
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(a.free.Len(), b.free.Len()) })
	for _, g := range groups {
		rest := g.free.Minus(out).List()
		rest = rest[:min(n, len(rest))]
		out, n = out.Union(machine.CPUs(rest...)), n-len(rest)
	}
	return out
}

// spread chooses n of the free CPUs from as many cores as possible
// (distribute-cpus-across-cores), within the smallest part of the machine that has enough.
func (t taker) spread(free machine.CPUSet, n int) machine.CPUSet {
	for _, level := range []func(machine.CPU) int{nodeOf, socketOf} {
		if g, ok := t.smallest(free, level, n); ok {
			free = g.free
			break
		}
	}
	var out []int
	groups := t.groups(free, coreOf)
	for round := 0; len(out) < n; round++ {
		for _, g := range groups {
			if list := g.free.List(); round < len(list) && len(out) < n {
				out = append(out, list[round])
			}
		}
	}
	return machine.CPUs(out...)
}

// distribute chooses n of the free CPUs evenly from the fewest NUMA nodes that together have enough
// (distribute-cpus-across-numa). It returns false if no set of nodes can give equal shares.
func (t taker) distribute(free machine.CPUSet, n int) (machine.CPUSet, bool) {
	unit := 1
	if t.fullCores {
		unit = t.threads()
	}
	byNode := map[int]machine.CPUSet{}
	var all topology.NodeSet
	for _, g := range t.groups(free, nodeOf) {
		byNode[g.id] = t.usable(g.free)
		all |= topology.Nodes(g.id)
	}
	for size := 1; size <= all.Len(); size++ {
		shares := evenShares(n, size, unit)
		if shares == nil {
			continue
		}
		var best []int
		most := -1 // the nodes with the most free CPUs keep the machine balanced
		all.Subsets(func(s topology.NodeSet) {
			if s.Len() != size {
				return
			}
			ids := s.IDs()
			slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(byNode[b].Len(), byNode[a].Len()) })
			sum := 0
			for i, id := range ids {
				if byNode[id].Len() < shares[i] {
					return
				}
				sum += byNode[id].Len()
			}
			if sum > most {
				best, most = ids, sum
			}
		})
		if best == nil {
			continue
		}
		var out machine.CPUSet
		for i, id := range best {
			out = out.Union(t.cores(byNode[id], shares[i]))
		}
		return out, true
	}
	return machine.CPUSet{}, false
}

// evenShares divides n CPUs among so many nodes, in units that must stay together; larger shares
// first. It returns nil if a node would get nothing.
func evenShares(n, nodes, unit int) []int {
	if n%unit != 0 || n/unit < nodes {
		return nil
	}
	shares := make([]int, nodes)
	for i := range shares {
		shares[i] = n / unit / nodes * unit
		if i < n/unit%nodes {
			shares[i] += unit
		}
	}
	return shares
}

package framework

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

// Selection says which pods to count, and by which topology keys.
type Selection struct {
	// ID is equal for selections that select the same.
	ID   string
	Keys []string
	// Matches selects pods.
	Matches func(*PodInfo) bool
	// ByNamespace means that Matches reads labels of namespaces.
	ByNamespace bool
	// Includes selects nodes; nil includes all.
	Includes func(*corev1.Node) bool
}

// Counts has the selected pods.
type Counts struct {
	// ByKey has the number of pods by topology value, in the order of the keys.
	ByKey []TopologyCount
	// Total is the number of pods on nodes with the keys, added up over the keys.
	Total int64

	selected *selected
	supposed map[int]int64 // difference of a supposition, by node
}

// OnNode returns the number of pods on the node.
func (c *Counts) OnNode(node *NodeInfo) int64 {
	return int64(c.selected.byNode[node.at]) + c.supposed[node.at]
}

// Domains returns the number of values that the included nodes have for a key.
func (c *Counts) Domains(key int) int { return c.selected.keys[key].domains }

// Least returns the smallest number of pods among the values of a key, or the largest integer if
// there is no value.
func (c *Counts) Least(key int) int64 {
	k := &c.selected.keys[key]
	shift := map[int64]int{}
	for value, n := range c.ByKey[key].supposed {
		if k.nodes[value] > 0 {
			shift[k.pods[value]]--
			shift[k.pods[value]+n]++
		}
	}
	least := int64(math.MaxInt64)
	for n, domains := range k.levels {
		if domains+shift[n] > 0 {
			least = min(least, n)
		}
	}
	for n, domains := range shift {
		if domains+k.levels[n] > 0 {
			least = min(least, n)
		}
	}
	return least
}

// selected are the counts of a selection in an Index.
type selected struct {
	Selection
	used   int // length of the history at the last use
	total  int64
	byNode []int32 // number of pods on each node
	keys   []selectedBy
}

// selectedBy are the counts by one topology key.
type selectedBy struct {
	topology *topology
	// pods and nodes count by value; only included nodes count.
	pods  []int64
	nodes []int32
	// domains is the number of values with nodes. levels counts them by their number of pods: the
	// smallest number is known without a look at all values.
	domains int
	levels  map[int64]int
}

// Count returns the pods of a selection.
func (s *Snapshot) Count(sel Selection) Counts {
	x := s.index()
	c := x.selections[sel.ID]
	if c == nil {
		c = x.selectPods(sel)
	}
	c.used = x.length
	out := Counts{Total: c.total, ByKey: make([]TopologyCount, len(sel.Keys)), selected: c}
	for k := range c.keys {
		out.ByKey[k] = TopologyCount{topology: c.keys[k].topology, dense: c.keys[k].pods}
	}
	s.suppositions(func(node *NodeInfo, pods []*PodInfo, sign int64) {
		n := sign * c.matching(node, pods)
		if n == 0 {
			return
		}
		if out.supposed == nil {
			out.supposed = map[int]int64{}
		}
		out.supposed[node.at] += n
		for k := range out.ByKey {
			if value := c.keys[k].topology.of[node.at]; value >= 0 {
				out.ByKey[k].suppose(value, n)
				out.Total += n
			}
		}
	})
	return out
}

// maxSelected bounds the memory of the selections: 4 bytes for each node, and more for values.
const maxSelected = 4 << 20

// selectPods begins to count a selection. It forgets the one that was not used for the longest time
// if there are many.
func (x *Index) selectPods(sel Selection) *selected {
	if len(x.selections) > max(maxSelected/max(x.nodes.Len(), 1), 16) {
		var oldest *selected
		for _, c := range x.selections {
			if oldest == nil || c.used < oldest.used {
				oldest = c
			}
		}
		delete(x.selections, oldest.ID)
	}
	c := &selected{Selection: sel, byNode: make([]int32, x.nodes.Len()), keys: make([]selectedBy, len(sel.Keys))}
	for k, key := range sel.Keys {
		c.keys[k] = selectedBy{topology: x.topology(key), levels: map[int64]int{}}
	}
	for _, n := range x.nodes.All() {
		c.countNode(n, 1)
		c.count(n, n.Pods, 1)
	}
	x.selections[sel.ID] = c
	return c
}

// matching counts the selected ones of the pods on a node.
func (c *selected) matching(node *NodeInfo, pods []*PodInfo) int64 {
	var n int64
	for _, p := range pods {
		if c.Matches(p) {
			n++
		}
	}
	if n > 0 && c.Includes != nil && !c.Includes(node.Node) {
		return 0
	}
	return n
}

// count adds the pods on a node with a sign.
func (c *selected) count(node *NodeInfo, pods []*PodInfo, sign int64) {
	n := sign * c.matching(node, pods)
	if n == 0 {
		return
	}
	c.byNode[node.at] += int32(n)
	for i := range c.keys {
		k := &c.keys[i]
		value := k.topology.of[node.at]
		if value < 0 {
			continue
		}
		c.total += n
		k.move(k.pods[value], -1)
		k.pods[value] += n
		k.move(k.pods[value], 1)
	}
}

// countNode adds a node without pods with a sign.
func (c *selected) countNode(node *NodeInfo, sign int) {
	if c.Includes != nil && !c.Includes(node.Node) {
		return
	}
	for i := range c.keys {
		k := &c.keys[i]
		value := k.topology.of[node.at]
		if value < 0 {
			continue
		}
		if missing := len(k.topology.numbers) - len(k.nodes); missing > 0 {
			k.nodes, k.pods = append(k.nodes, make([]int32, missing)...), append(k.pods, make([]int64, missing)...)
		}
		before := k.nodes[value]
		k.nodes[value] += int32(sign)
		if before == 0 || k.nodes[value] == 0 {
			k.domains += sign
			k.move(k.pods[value], sign)
		}
	}
}

// move counts one value more or less with a number of pods.
func (k *selectedBy) move(pods int64, sign int) {
	if k.levels[pods] += sign; k.levels[pods] == 0 {
		delete(k.levels, pods)
	}
}

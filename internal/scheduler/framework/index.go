package framework

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// TermKind is a list of affinity terms in a pod.
type TermKind int

const (
	RequiredAffinity TermKind = iota
	RequiredAntiAffinity
	PreferredAffinity
	PreferredAntiAffinity
	termKinds
)

func (p *PodInfo) terms(kind TermKind) []Term {
	switch kind {
	case RequiredAffinity:
		return p.RequiredAffinity
	case RequiredAntiAffinity:
		return p.RequiredAntiAffinity
	case PreferredAffinity:
		return p.PreferredAffinity
	default:
		return p.PreferredAntiAffinity
	}
}

// Index counts pods by topology value, for one history. Each change of a node changes the counts by
// its difference, so a decision does not look at all pods. It serves one goroutine.
type Index struct {
	nodes  NodeList // as counted
	length int      // of the history, as far as it is counted
	// topologies has the values of the nodes, by topology key.
	topologies map[string]*topology
	// terms are the affinity terms of the pods on nodes.
	terms [termKinds]termIndex
	// selections count pods for the terms of incoming pods, by Selection.ID.
	selections map[string]*selected
	images     map[string]int // number of nodes by the name of an image
}

// topology numbers the values of a topology key: a number is faster to find than a label.
type topology struct {
	key     string
	numbers map[string]int32
	of      []int32 // the number of each node's value; -1 for a node without the key
}

func (x *Index) topology(key string) *topology {
	t := x.topologies[key]
	if t == nil {
		t = &topology{key: key, numbers: map[string]int32{}, of: make([]int32, x.nodes.Len())}
		for i, n := range x.nodes.All() {
			t.set(i, n.Node)
		}
		x.topologies[key] = t
	}
	return t
}

func (t *topology) set(i int, node *corev1.Node) {
	value, ok := node.Labels[t.key]
	if !ok {
		t.of[i] = -1
		return
	}
	number, ok := t.numbers[value]
	if !ok {
		number = int32(len(t.numbers))
		t.numbers[value] = number
	}
	t.of[i] = number
}

// index returns the counts of this snapshot, or of its base if it is a supposition.
func (s *Snapshot) index() *Index {
	if s.base != nil {
		s = s.base
	}
	h := s.mark.history
	if x := h.index; x != nil {
		if changed, ok := s.ChangedSince(Mark{h, x.length}); ok {
			x.advance(s, changed)
			return x
		}
		if x.length > s.mark.length {
			return newIndex(s) // of the past; the history keeps the newer one
		}
	}
	h.index = newIndex(s)
	return h.index
}

// NamespacesChanged makes later snapshots of the cluster count again where labels of namespaces
// matter. Only the owner of the cluster calls it.
func (s *Snapshot) NamespacesChanged() {
	if x := s.mark.history.index; x != nil {
		maps.DeleteFunc(x.selections, func(_ string, c *selected) bool { return c.ByNamespace })
	}
}

func newIndex(s *Snapshot) *Index {
	x := &Index{nodes: s.Nodes, length: s.mark.length, topologies: map[string]*topology{}, selections: map[string]*selected{}, images: map[string]int{}}
	for _, n := range s.Nodes.All() {
		x.countTerms(n, n.WithAffinity, 1)
		x.countImages(n, 1)
	}
	return x
}

// advance counts the changes up to a snapshot.
func (x *Index) advance(s *Snapshot, changed []int32) {
	if len(changed) == 0 {
		return
	}
	if len(changed) > 1 {
		changed = slices.Clone(changed)
		slices.Sort(changed)
		changed = slices.Compact(changed)
	}
	before := x.nodes
	x.nodes, x.length = s.Nodes, s.mark.length
	for _, i := range changed {
		if old, now := before.At(int(i)), s.Nodes.At(int(i)); old != now {
			x.replace(old, now)
		}
	}
	for id, c := range x.selections {
		if x.length-c.used > max(4*s.Nodes.Len(), 4096) {
			delete(x.selections, id)
		}
	}
}

// replace counts the difference of two states of a node.
func (x *Index) replace(old, now *NodeInfo) {
	removed, added := old.Pods, now.Pods
	if old.Node == now.Node {
		removed, added = difference(old.Pods, now.Pods)
	}
	x.countTerms(old, removed, -1)
	for _, c := range x.selections {
		c.count(old, removed, -1)
	}
	if old.Node != now.Node {
		x.replaceNode(old, now)
	}
	x.countTerms(now, added, 1)
	for _, c := range x.selections {
		c.count(now, added, 1)
	}
}

// replaceNode replaces a node without pods.
func (x *Index) replaceNode(old, now *NodeInfo) {
	x.countImages(old, -1)
	x.countImages(now, 1)
	for _, c := range x.selections {
		c.countNode(old, -1)
	}
	for _, t := range x.topologies {
		t.set(now.at, now.Node)
	}
	for _, c := range x.selections {
		c.countNode(now, 1)
	}
}

// difference compares two states of a node's pods. It relies on no order, but needs the least work
// if pods were removed or appended.
func difference(old, now []*PodInfo) (removed, added []*PodInfo) {
	same := 0
	for _, p := range old {
		if same < len(now) && now[same] == p {
			same++
		} else {
			removed = append(removed, p)
		}
	}
	return removed, now[same:]
}

func (x *Index) countImages(n *NodeInfo, sign int) {
	for name := range n.Images {
		if x.images[name] += sign; x.images[name] == 0 {
			delete(x.images, name)
		}
	}
}

// NodesWithImage returns the number of nodes that have an image of this name.
func (s *Snapshot) NodesWithImage(name string) int { return s.index().images[name] }

func (x *Index) countTerms(n *NodeInfo, pods []*PodInfo, sign int64) {
	for _, p := range pods {
		if !p.hasAffinity() {
			continue
		}
		for kind := range termKinds {
			for i := range p.terms(kind) {
				x.countTerm(kind, &p.terms(kind)[i], n, sign)
			}
		}
	}
}

// TopologyCount has a number for each value of a topology key.
type TopologyCount struct {
	topology *topology
	// dense has the numbers by the number of the value; sparse has them where most are 0. Both are
	// shared with the index. supposed has the difference of a supposition.
	dense            []int64
	sparse, supposed map[int32]int64
}

// On returns the number for the node's value; ok is false if the node does not have the key.
func (t *TopologyCount) On(node *NodeInfo) (n int64, ok bool) {
	value := t.topology.of[node.at]
	if value < 0 {
		return 0, false
	}
	return t.of(value), true
}

func (t *TopologyCount) of(value int32) (n int64) {
	if int(value) < len(t.dense) {
		n = t.dense[value]
	} else if t.sparse != nil {
		n = t.sparse[value]
	}
	if t.supposed != nil {
		n += t.supposed[value]
	}
	return n
}

// Values returns the number of different values on the nodes. A missing value is one too.
func (t *TopologyCount) Values(nodes []*NodeInfo) (n int) {
	seen := make([]bool, len(t.topology.numbers)+1)
	for _, node := range nodes {
		if value := t.topology.of[node.at] + 1; !seen[value] {
			seen[value] = true
			n++
		}
	}
	return n
}

func (t *TopologyCount) suppose(value int32, n int64) {
	if t.supposed == nil {
		t.supposed = map[int32]int64{}
	}
	t.supposed[value] += n
}

// termIndex has the affinity terms of one kind of the pods on nodes. Equal terms form a group.
type termIndex struct {
	groups map[string]*termGroup
	// byLabel has the groups whose selector requires a label with one value; others has the rest.
	byLabel map[label][]*termGroup
	others  []*termGroup
}

type label struct{ key, value string }

// termGroup counts the terms by the topology value of their pod's node, each with its weight.
type termGroup struct {
	term     *Term
	topology *topology
	values   map[int32]int64
	label    *label
}

func (x *Index) countTerm(kind TermKind, t *Term, node *NodeInfo, sign int64) {
	topology := x.topology(t.TopologyKey)
	value := topology.of[node.at]
	if value < 0 {
		return
	}
	terms := &x.terms[kind]
	g := terms.groups[t.ID]
	if g == nil {
		g = terms.add(t)
		g.topology = topology
	}
	if g.values[value] += sign * max(t.Weight, 1); g.values[value] != 0 {
		return
	}
	if delete(g.values, value); len(g.values) == 0 {
		terms.remove(g)
	}
}

func (x *termIndex) add(t *Term) *termGroup {
	if x.groups == nil {
		x.groups, x.byLabel = map[string]*termGroup{}, map[label][]*termGroup{}
	}
	g := &termGroup{term: t, values: map[int32]int64{}, label: requiredLabel(t.Selector)}
	x.groups[t.ID] = g
	if g.label != nil {
		x.byLabel[*g.label] = append(x.byLabel[*g.label], g)
	} else {
		x.others = append(x.others, g)
	}
	return g
}

func (x *termIndex) remove(g *termGroup) {
	delete(x.groups, g.term.ID)
	not := func(o *termGroup) bool { return o == g }
	if g.label == nil {
		x.others = slices.DeleteFunc(x.others, not)
	} else if x.byLabel[*g.label] = slices.DeleteFunc(x.byLabel[*g.label], not); len(x.byLabel[*g.label]) == 0 {
		delete(x.byLabel, *g.label)
	}
}

// requiredLabel returns a label that each selected pod has; nil if there is none.
func requiredLabel(s labels.Selector) *label {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if r.Values().Len() == 1 {
				return &label{r.Key(), r.ValuesUnsorted()[0]}
			}
		}
	}
	return nil
}

// TermsAbout returns the terms of a kind, of the pods on nodes, that select the pod: the sum of
// their weights by the topology value of their node. A required term has weight 1.
func (s *Snapshot) TermsAbout(kind TermKind, pod *PodInfo) []TopologyCount {
	index := s.index()
	x := &index.terms[kind]
	if len(x.groups) == 0 && s.base == nil {
		return nil
	}
	namespace := s.labelsOf(pod.Pod.Namespace)
	var out []TopologyCount
	var ids []string // of out; only for suppositions
	add := func(groups []*termGroup) {
		for _, g := range groups {
			if g.term.Matches(pod.Pod.Namespace, pod.Pod.Labels, namespace) {
				out = append(out, TopologyCount{topology: g.topology, sparse: g.values})
				if s.base != nil {
					ids = append(ids, g.term.ID)
				}
			}
		}
	}
	add(x.others)
	if len(x.byLabel) > 0 {
		for k, v := range pod.Pod.Labels {
			add(x.byLabel[label{k, v}])
		}
	}
	s.suppositions(func(node *NodeInfo, pods []*PodInfo, sign int64) {
		for _, p := range pods {
			terms := p.terms(kind)
			for i := range terms {
				t := &terms[i]
				if !t.Matches(pod.Pod.Namespace, pod.Pod.Labels, namespace) {
					continue
				}
				topology := index.topology(t.TopologyKey)
				value := topology.of[node.at]
				if value < 0 {
					continue
				}
				at := slices.Index(ids, t.ID)
				if at < 0 {
					at, ids, out = len(out), append(ids, t.ID), append(out, TopologyCount{topology: topology})
				}
				out[at].suppose(value, sign*max(t.Weight, 1))
			}
		}
	})
	return out
}

// suppositions calls fn for the pods that a supposition removes (sign -1) and adds (1).
func (s *Snapshot) suppositions(fn func(node *NodeInfo, pods []*PodInfo, sign int64)) {
	if s.base == nil {
		return
	}
	for _, c := range s.Nodes.supposed {
		old, now := s.base.Nodes.At(c.index), s.Nodes.At(c.index)
		if now != c.node {
			continue // a later supposition replaces it
		}
		removed, added := difference(old.Pods, now.Pods)
		fn(old, removed, -1)
		fn(now, added, 1)
	}
}

func (s *Snapshot) labelsOf(namespace string) labels.Set {
	if s.NamespaceLabels == nil {
		return nil
	}
	return s.NamespaceLabels(namespace)
}

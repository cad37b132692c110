package scheduler

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Classes keeps what plugins answered about nodes, for pods that they cannot tell apart: a class.
// An answer counts until its node changes, so a decision for a known class asks only about the
// nodes that changed since the last one (ADR 104). One goroutine uses it. A nil Classes keeps
// nothing.
type Classes struct {
	of map[string]*class
	// seen has the keys that came once: a class that never comes again is not worth its memory.
	seen map[string]bool
	uses uint64
	// profiles numbers the profiles: the key of a class begins with the number.
	profiles map[*framework.Profile]uint64

	// Buffers of one decision.
	key      []byte
	feasible []int32
	nodes    []*framework.NodeInfo
	numbers  []int64
}

// Bounds of the memory: 16 bytes for each node of a class.
const (
	maxAnswers  = 2 << 20
	minClasses  = 8
	maxClasses  = 512
	maxSeenKeys = 4096
)

// NewClasses makes an empty one.
func NewClasses() *Classes {
	return &Classes{of: map[string]*class{}, seen: map[string]bool{}, profiles: map[*framework.Profile]uint64{}}
}

// scratch returns an empty list for the feasible nodes of a decision.
func (c *Classes) scratch(size int) []int32 {
	if c == nil {
		return make([]int32, 0, size)
	}
	if cap(c.feasible) < size {
		c.feasible = make([]int32, 0, size)
	}
	return c.feasible[:0]
}

// nodesOf returns room for nodes.
func (c *Classes) nodesOf(size int) []*framework.NodeInfo {
	if c == nil {
		return make([]*framework.NodeInfo, size)
	}
	if cap(c.nodes) < size {
		c.nodes = make([]*framework.NodeInfo, size)
	}
	return c.nodes[:size]
}

// sums returns zeros for the sums of scores, and room for the scores of a plugin.
func (c *Classes) sums(size int) (total, scores []int64) {
	if c == nil {
		numbers := make([]int64, 2*size)
		return numbers[:size], numbers[size:]
	}
	if cap(c.numbers) < 2*size {
		c.numbers = make([]int64, 2*size)
	}
	numbers := c.numbers[:2*size]
	clear(numbers[:size])
	return numbers[:size], numbers[size:]
}

// class has the answers of the local plugins for a class of pods.
type class struct {
	used uint64
	mark framework.Mark // up to which changes of nodes are known

	filters []framework.FilterPlugin // the local ones, before all others
	plain   []framework.Weighted     // local score plugins without Normalize
	columns []column                 // local score plugins with Normalize

	// sums has the sum of the plain scores by node, or unknown, or refused. Then refusals has the
	// reason.
	sums     []int64
	refusals []*framework.Status
	failed   bool // a plugin failed: the class does not answer
}

const (
	unknown int64 = math.MinInt64
	refused int64 = math.MinInt64 + 1
)

// column has the scores of one plugin before Normalize.
type column struct {
	framework.Weighted
	normalize framework.NormalizePlugin
	known     bool
	same      int64   // the score of all nodes, while scores is nil
	scores    []int64 // by node
}

func isLocal(p framework.Plugin) bool {
	_, ok := p.(framework.LocalPlugin)
	return ok
}

// useClass finds the class of the pod and brings it up to date. Without one the search asks all
// plugins about each node.
func (s *search) useClass() {
	classes := s.in.Classes
	if classes == nil || s.allowed != nil {
		return
	}
	mark, ok := s.in.Snapshot.Mark()
	if !ok {
		return
	}
	local := 0
	for local < len(s.filters) && isLocal(s.filters[local]) {
		local++
	}
	classes.makeKey(s.in, local)
	c := classes.of[string(classes.key)]
	if c == nil {
		if c = classes.add(s, local); c == nil {
			return
		}
	}
	for _, p := range s.in.Profile.PreScores {
		if !isLocal(p) {
			continue
		}
		if status := p.PreScore(s.d.State, s.in.Pod, s.in.Snapshot, nil); status.Skipped() {
			s.silent = append(s.silent, p.Name())
		} else if !status.OK() {
			return
		}
	}
	classes.uses++
	c.used = classes.uses
	c.advance(s.in.Snapshot, mark)
	if c.failed {
		return
	}
	s.class, s.filters = c, s.filters[local:]
}

// makeKey writes the pod's key: what the local plugins read.
func (c *Classes) makeKey(in *Input, local int) {
	number, ok := c.profiles[in.Profile]
	if !ok {
		number = uint64(len(c.profiles))
		c.profiles[in.Profile] = number
	}
	key := binary.AppendUvarint(c.key[:0], number)
	key = binary.AppendUvarint(key, uint64(local))
	for _, p := range in.Profile.Filters {
		if l, ok := p.(framework.LocalPlugin); ok {
			key = l.AppendKey(key, in.Pod, in.Snapshot)
		}
	}
	for _, p := range in.Profile.Scores {
		if l, ok := p.ScorePlugin.(framework.LocalPlugin); ok && !isFilter(p) {
			key = l.AppendKey(key, in.Pod, in.Snapshot)
		}
	}
	c.key = key
}

// isFilter reports whether the score plugin is a filter too, whose key is already written.
func isFilter(p framework.Weighted) bool {
	_, ok := p.ScorePlugin.(framework.FilterPlugin)
	return ok
}

// add makes a class for the key, but not when the key comes for the first time.
func (c *Classes) add(s *search, local int) *class {
	if !c.seen[string(c.key)] {
		if len(c.seen) >= maxSeenKeys {
			clear(c.seen)
		}
		c.seen[string(c.key)] = true
		return nil
	}
	delete(c.seen, string(c.key))
	if nodes := max(s.in.Snapshot.Nodes.Len(), 1); len(c.of) >= min(max(maxAnswers/nodes, minClasses), maxClasses) {
		c.evict()
	}
	n := &class{filters: slices.Clone(s.filters[:local])}
	for _, p := range s.in.Profile.Scores {
		if !isLocal(p.ScorePlugin) {
			continue
		}
		if normalize, ok := p.ScorePlugin.(framework.NormalizePlugin); ok {
			n.columns = append(n.columns, column{Weighted: p, normalize: normalize})
		} else {
			n.plain = append(n.plain, p)
		}
	}
	c.of[string(c.key)] = n
	return n
}

// evict drops the class that was not used for the longest time.
func (c *Classes) evict() {
	oldest := ""
	for key, n := range c.of {
		if oldest == "" || n.used < c.of[oldest].used {
			oldest = key
		}
	}
	delete(c.of, oldest)
}

// advance forgets the answers about nodes that changed.
func (c *class) advance(snapshot *framework.Snapshot, mark framework.Mark) {
	changed, ok := snapshot.ChangedSince(c.mark)
	c.mark = mark
	if ok {
		for _, i := range changed {
			c.sums[i] = unknown
		}
		return
	}
	nodes := snapshot.Nodes.Len()
	c.sums, c.refusals, c.failed = slices.Repeat([]int64{unknown}, nodes), make([]*framework.Status, nodes), false
	for k := range c.columns {
		c.columns[k].known, c.columns[k].scores = false, nil
	}
}

// answer returns the refusal of a node by the local plugins, nil if they accept it, or the status
// of a plugin that failed.
func (c *class) answer(i int, s *search) *framework.Status {
	if c.sums[i] == unknown {
		if status := c.ask(i, s); !status.OK() && !status.Rejected() {
			c.failed = true
			return status
		}
	}
	if c.sums[i] == refused {
		return c.refusals[i]
	}
	return nil
}

// ask asks the plugins about a node.
func (c *class) ask(i int, s *search) *framework.Status {
	node := s.in.Snapshot.Nodes.At(i)
	status := runFilters(s.d.State, c.filters, s.in.Pod, node)
	switch {
	case status.Rejected():
		c.sums[i], c.refusals[i] = refused, status
		return status
	case !status.OK():
		return status
	}
	var sum int64
	for _, p := range c.plain {
		if s.silent.Has(p.Name()) {
			continue
		}
		score, status := p.Score(s.d.State, s.in.Pod, node)
		if !status.OK() {
			return from(p, status)
		}
		sum += score * p.Weight
	}
	for k := range c.columns {
		col := &c.columns[k]
		if s.silent.Has(col.Name()) {
			continue
		}
		score, status := col.Score(s.d.State, s.in.Pod, node)
		if !status.OK() {
			return from(col, status)
		}
		col.set(i, score, len(c.sums))
	}
	c.sums[i], c.refusals[i] = sum, nil
	return nil
}

func (c *column) set(i int, score int64, nodes int) {
	switch {
	case c.scores != nil:
		c.scores[i] = score
	case !c.known:
		c.known, c.same = true, score
	case c.same != score:
		c.scores = slices.Repeat([]int64{c.same}, nodes)
		c.scores[i] = score
	}
}

// scores reports whether the class has the plugin's scores.
func (c *class) scores(p framework.Weighted) bool { return c != nil && isLocal(p.ScorePlugin) }

// addScores adds the weighted scores of the feasible nodes.
func (c *class) addScores(s *search, feasible []int32, nodes []*framework.NodeInfo, total, scores []int64) {
	var constant int64
	for k := range c.columns {
		col := &c.columns[k]
		if s.silent.Has(col.Name()) {
			continue
		}
		if col.scores == nil { // all are equal, so they are equal after Normalize too
			scores[0] = col.same
			col.normalize.Normalize(s.d.State, s.in.Pod, nodes[:1], scores[:1])
			constant += scores[0] * col.Weight
			continue
		}
		for i, at := range feasible {
			scores[i] = col.scores[at]
		}
		col.normalize.Normalize(s.d.State, s.in.Pod, nodes, scores)
		for i, score := range scores {
			total[i] += score * col.Weight
		}
	}
	for i, at := range feasible {
		total[i] += c.sums[at] + constant
	}
}

// filterByClass is filter for a pod about which the class knows everything.
func (s *search) filterByClass(wanted int) []int32 {
	feasible := s.in.Classes.scratch(wanted)
	sums := s.class.sums
	for _, part := range [][2]int{{s.in.Start, len(sums)}, {0, s.in.Start}} {
		for i := part[0]; i < part[1]; i++ {
			sum := sums[i]
			if sum == unknown {
				if status := s.class.answer(i, s); !status.OK() && !status.Rejected() {
					s.fail(i, status)
					return nil
				}
				sum = sums[i]
			}
			if sum == refused {
				s.refused++
				continue
			}
			if feasible = append(feasible, int32(i)); len(feasible) >= wanted {
				return feasible
			}
		}
	}
	if len(feasible) == 0 {
		s.explain()
	}
	return feasible
}

// explain notes the refusals of all nodes, in the order of the search.
func (s *search) explain() {
	refusals := s.class.refusals
	s.refused = 0
	s.d.Refusals.list = make([]refusedNode, 0, len(refusals))
	for _, part := range [][2]int{{s.in.Start, len(refusals)}, {0, s.in.Start}} {
		for i := part[0]; i < part[1]; i++ {
			s.d.Refusals.add(i, refusals[i])
		}
	}
}

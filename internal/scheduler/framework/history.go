package framework

// history lists the nodes that changed from one snapshot of a cluster to the next. Its snapshots
// have the same nodes in the same order. The owner of the cluster appends; a snapshot reads no
// further than its own length.
type history struct {
	changed []int32 // indexes of nodes
	dropped int     // number of older changes that are forgotten
	index   *Index  // counts of the pods, as far as they were asked for
}

// Mark is a point in the history of a cluster.
type Mark struct {
	history *history
	length  int
}

// Mark returns the snapshot's point in the history. ok is false for a snapshot outside of a
// history, such as a supposition of preemption.
func (s *Snapshot) Mark() (m Mark, ok bool) { return s.mark, s.mark.history != nil && s.base == nil }

// ChangedSince returns the indexes of the nodes that may differ from those at an earlier point.
// Some appear repeatedly. ok is false if the history does not reach back so far.
func (s *Snapshot) ChangedSince(m Mark) (indexes []int32, ok bool) {
	h := s.mark.history
	if h == nil || m.history != h || m.length < h.dropped || m.length > s.mark.length || s.base != nil {
		return nil, false
	}
	return h.changed[m.length-h.dropped : s.mark.length-h.dropped], true
}

// append adds changes and returns the new length. It forgets the oldest changes when there are many
// more than nodes: counting again is cheaper then.
func (h *history) append(changes []nodeChange, nodes int) int {
	if limit := max(4*nodes, 4096); len(h.changed) > limit {
		drop := len(h.changed) / 2
		h.changed = append([]int32(nil), h.changed[drop:]...)
		h.dropped += drop
	}
	for _, c := range changes {
		h.changed = append(h.changed, int32(c.index))
	}
	return h.dropped + len(h.changed)
}

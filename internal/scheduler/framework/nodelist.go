package framework

import "iter"

// chunkSize is the number of nodes that a changed copy of a NodeList copies for one change, beside
// one pointer for each chunk. It is about the square root of 10,000 nodes.
const chunkSize = 128

// NodeList is an immutable list of nodes. Changed copies share the chunks without changes.
type NodeList struct {
	chunks []*[chunkSize]*NodeInfo
	length int
	// supposed are changes without a copy, the latest last.
	supposed []nodeChange
}

// NewNodeList copies the nodes.
func NewNodeList(nodes []*NodeInfo) NodeList {
	l := NodeList{length: len(nodes), chunks: make([]*[chunkSize]*NodeInfo, 0, (len(nodes)+chunkSize-1)/chunkSize)}
	for start := 0; start < len(nodes); start += chunkSize {
		chunk := new([chunkSize]*NodeInfo)
		copy(chunk[:], nodes[start:])
		l.chunks = append(l.chunks, chunk)
	}
	return l
}

// Len returns the number of nodes.
func (l *NodeList) Len() int { return l.length }

// At returns the node with this index.
func (l *NodeList) At(i int) *NodeInfo {
	if l.supposed != nil {
		for k := len(l.supposed) - 1; k >= 0; k-- {
			if l.supposed[k].index == i {
				return l.supposed[k].node
			}
		}
	}
	return l.chunks[uint(i)/chunkSize][uint(i)%chunkSize]
}

// All yields the nodes in order, with their indexes.
func (l *NodeList) All() iter.Seq2[int, *NodeInfo] {
	return func(yield func(int, *NodeInfo) bool) {
		if l.supposed != nil {
			for i := 0; i < l.length && yield(i, l.At(i)); i++ {
			}
			return
		}
		for c, chunk := range l.chunks {
			start := c * chunkSize
			for i, n := range chunk[:min(chunkSize, l.length-start)] {
				if !yield(start+i, n) {
					return
				}
			}
		}
	}
}

// nodeChange replaces the node with an index.
type nodeChange struct {
	index int
	node  *NodeInfo
}

// suppose returns a list with the changes that costs next to nothing, but is slower to read.
func (l NodeList) suppose(changes []nodeChange) NodeList {
	l.supposed = append(l.supposed[:len(l.supposed):len(l.supposed)], changes...)
	return l
}

// with returns a copy with the changes.
func (l NodeList) with(changes []nodeChange) NodeList {
	old := l.chunks
	l.chunks = append([]*[chunkSize]*NodeInfo(nil), old...)
	for _, c := range changes {
		at := c.index / chunkSize
		if l.chunks[at] == old[at] {
			chunk := *old[at]
			l.chunks[at] = &chunk
		}
		l.chunks[at][c.index%chunkSize] = c.node
	}
	return l
}

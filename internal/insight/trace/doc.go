// Package trace tells the story of a change: the writes that came of it, and the steps of the nodes
// between them, as a tree of hops.
//
// Words. A hop is one step of the story: a write, or a step of a node. A root is a write that began
// the story. Facts are objects and events of the API that show the steps of nodes.
//
// In: Records of the causal logs (Servers asks them) and Facts. Out: a Tree, as text, JSON, or the
// trace event format of Chrome and Perfetto. Build is a pure function.
//
// Steps of nodes come from conditions and events of pods. Conditions have a precision of a second.
// ADR 0086 has the design.
package trace

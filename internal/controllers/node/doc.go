// Package node holds the controllers of nodes and of the pods on them: allocation of pod ranges,
// detection of dead nodes, taints, evictions, and deletion of orphaned pods.
//
// In: Nodes, Pods, Leases. Out: taints, conditions, annotations and pod ranges of Nodes; deletions
// and conditions of Pods.
package node

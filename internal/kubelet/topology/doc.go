// Package topology places a container's CPUs, memory and devices on the same NUMA nodes.
//
// # Words
//
// A NUMA node is a part of the machine whose CPUs reach its memory fast. A hint is a set of NUMA
// nodes that can give a container one resource; it is preferred if no smaller set could on an empty
// machine. A provider is a manager of one kind of resource: CPUs, memory or devices. The affinity
// of a container is the hint that the policy chose for all its resources.
//
// # In
//
// Admit is called once for each pod that wants to run on the node. It asks every provider for
// hints, merges them, and lets the policy judge the result. Then each provider allocates its
// resources within the affinity.
//
// # Out
//
// A pod that the policy refuses fails with reason TopologyAffinityError. The resources that the
// providers had already given to it are released.
//
// The behaviour is that of upstream's Topology Manager (KEP-693, KEP-3545).
package topology

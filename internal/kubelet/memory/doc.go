// Package memory binds containers to the memory of NUMA nodes (upstream's Memory Manager,
// KEP-1769).
//
// # Words
//
// A block is an amount of one resource, memory or huge pages of one size, on a set of NUMA nodes. A
// table counts one resource of one node. Nodes of a block with several nodes form a group: until
// the block is released, other blocks use exactly the group or none of its nodes. So a block never
// finds a node full that its group was counted to have free.
//
// # In
//
// The topology manager asks for hints, allocates and releases (topology.Provider). Under the policy
// "Static", containers of Guaranteed pods get blocks for all their memory and huge pages.
//
// # Out
//
// Nodes says on which NUMA nodes a container may use memory. The file memory_manager_state has the
// blocks in upstream's format. It is written before an allocation counts.
package memory

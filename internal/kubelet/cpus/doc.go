// Package cpus gives containers exclusive CPUs (upstream's CPU Manager).
//
// # Words
//
// The shared pool is the set of CPUs on which all containers without exclusive CPUs run. Reserved
// CPUs are never exclusive, so the pool is never empty. An entry is a container's set of exclusive
// CPUs.
//
// # In
//
// The topology manager asks for hints, allocates and releases (topology.Provider). Under the policy
// "static", containers of Guaranteed pods with a whole number of CPUs get exclusive ones.
//
// # Out
//
// Set says on which CPUs a container runs. The file cpu_manager_state has the pool and the entries
// in upstream's format, so that a node can change between both node agents. It is written before an
// allocation counts.
//
// docs/adr/0052 explains how CPUs are chosen.
package cpus

// Package stats measures the resource usage of the node, its pods and their containers: CPU,
// memory, network, disks, processes. The runtime provides the numbers of containers and pods, the
// kernel those of the node.
package stats

// Package stats measures what the node, its pods and their containers use: CPU, memory, network, disks, processes. Numbers of containers
// and pods come from the runtime, those of the node from the kernel.
package stats

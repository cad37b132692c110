// Package cri runs and speaks to the container runtime: the included containerd as a supervised child, or any other
// endpoint of CRI v1.
//
// Words. A Runtime is a connected CRI endpoint: its runtime service (sandboxes, containers) and its image service. The included
// runtime is the one that Start unpacks, configures and supervises; Connect speaks to one that somebody else runs.
//
// Data in: the programs that runtime/build.sh put into embedded/, a Config. Data out: processes, sockets and files under the
// data and run folders; containers, which outlive both containerd and knarr.
//
// The decision behind it is docs/adr/0010-containerd-included.md.
package cri

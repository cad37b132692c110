// Package cri runs the container runtime and connects to it: the included containerd as a
// supervised child, or any other CRI v1 endpoint.
//
// Words. A Runtime is a connected CRI endpoint with its runtime service (sandboxes, containers) and
// its image service. The included runtime is the one that Start unpacks, configures and supervises.
// Connect connects to one that knarr does not run.
//
// In: the programs that runtime/build.sh put into embedded/, and a Config. Out: processes, sockets
// and files under the data and run folders; containers, which outlive both containerd and knarr.
//
// See docs/adr/0010-containerd-included.md.
package cri

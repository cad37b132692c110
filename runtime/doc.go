// Package runtime is a separate Go module for the programs that knarr includes: containerd, its
// shim, runc, the CNI plugin and the pause process. build.sh builds and compresses them;
// internal/cri embeds them.
//
// The module is separate because containerd 2.4 requires k8s.io v0.37 libraries, and knarr uses
// v0.36. Moreover, in one process containerd and etcd would register the same Prometheus
// collectors. See docs/adr/0010-containerd-included.md.
package runtime

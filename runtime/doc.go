// Package runtime is a Go module of its own that holds the small programs which knarr carries along: containerd, its shim,
// runc, the CNI plugin and the pause process. They are built by build.sh, compressed, and embedded by internal/cri.
//
// Why a module of its own: containerd 2.4 wants k8s.io v0.37 libraries while knarr is made of v0.36, and in one process with
// etcd both register the same Prometheus collectors. See docs/adr/0010-containerd-included.md.
package runtime

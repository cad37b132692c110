// Package image brings container images into the included containerd and out of it: load, build, list, remove, push.
//
// Words. A Client is a connection to containerd's own socket; it works in CRI's namespace, so what it loads is what pods see. An
// archive is an image in a tar: docker's (`docker save`) or an OCI layout, also gzipped. A Containerfile's instructions that
// need a running container (RUN) are refused: build puts files together, without a daemon.
//
// containerd's client library is not imported: it wants k8s.io v0.37 (docs/adr/0010-containerd-included.md). Its API module with
// the gRPC services is small and enough.
package image

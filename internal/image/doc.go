// Package image loads, builds, lists, removes and pushes container images of the included
// containerd.
//
// Words. A Client is a connection to containerd's own socket. It uses CRI's namespace, so pods see
// the images that it loads. An archive is an image in a tar, optionally gzipped: docker's (`docker
// save`) or an OCI layout. A build puts files together without a daemon. It refuses Containerfile
// instructions that need a running container (RUN).
//
// An archive can come from anywhere, and a small one can unpack to more than a disk holds. So a
// load measures each layer before containerd has all of it (docs/adr/0063).
//
// containerd's client library is not imported, because it requires k8s.io v0.37
// (docs/adr/0010-containerd-included.md). Its API module with the gRPC services is small and
// sufficient.
package image

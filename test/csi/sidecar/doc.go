// Package sidecar has small stand-ins for programs that run beside a CSI driver and cannot be built
// from a Go module proxy: the node driver registrar, the provisioner, the resizer and the liveness
// probe. They take the flags that upstream's end-to-end tests give to the real ones, and serve
// tests only: they do not elect leaders, and do not limit their work.
package sidecar

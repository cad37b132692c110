// Package controlplane builds the control plane: store, API server, controllers and scheduler, with
// the keys, the authentication and the certificates between them. internal/run puts it into a
// process of knarr, knarrtest into a Go test. It knows no node, so a program that imports it
// contains no container runtime (ADR 0037).
//
// Words: a component starts, is usable, and ends (internal/process). In:    a config.Config, and
// Options. Out:   the Start methods of Server, in the order in which they need each other: keys and
// store, API server, controllers and scheduler; then AwaitFirstObjects.
package controlplane

// Package controlplane builds the control plane: store, API server, controllers and scheduler, with
// the keys, authentication and certificates between them. internal/run runs it in a knarr process,
// knarrtest in a Go test. It contains no node, so a program that imports it contains no container
// runtime (ADR 0037).
//
// Words. A component starts, becomes usable, and ends (internal/process).
//
// In: a config.Config, and Options. Out: the Start methods of Server. Their order is: keys and
// store, API server, controllers and scheduler, and finally AwaitFirstObjects.
package controlplane

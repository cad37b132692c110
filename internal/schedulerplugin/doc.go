// Package schedulerplugin owns the kind SchedulerPlugin of scheduling.knarr.io/v1alpha1: a plugin
// of the scheduler that is loaded at run time.
//
// Words. The source is the place of the WebAssembly module. The digest is the SHA-256 sum of the
// bytes there. The controller in internal/controllers/schedulerplugins makes the kind's
// CustomResourceDefinition. The scheduler reads the objects, and writes their status
// (internal/scheduler/wasm).
//
// ADR 102 has the reasons.
package schedulerplugin

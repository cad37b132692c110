// Package wasm runs scheduling plugins that are loaded at run time, in WebAssembly. It is a host
// with the guest ABI of kubernetes-sigs/kube-scheduler-wasm-extension.
//
// # Words
//
//	guest     a compiled module that exports extension points, such as filter and score
//	instance  one copy of a guest with a memory of its own
//	cycle     the scheduling of one pod, from PreFilter to PostBind; it keeps one instance
//	verdict   what a guest answers at an extension point
//	failure   a call without a valid verdict: a trap, a timeout, or an answer that cannot be true
//
// # In
//
// SchedulerPlugin objects (internal/schedulerplugin) and the modules that they name, from a file,
// an OCI artifact or a ConfigMap.
//
// # Out
//
// Plugins of the scheduling framework. A Manager gives them to the scheduler, and writes conditions
// and events.
//
// A guest is not trusted with anything but its verdict. It has no files, network, clock or
// randomness. Its memory and time are bounded. A failure costs the verdict: failurePolicy says
// whether the pod is refused, or the guest is ignored. ADR 102 has the reasons.
package wasm

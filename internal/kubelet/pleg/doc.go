// Package pleg reports what the container runtime has of each pod. The name is upstream's: pod
// lifecycle event generator.
//
// The CRI event stream delivers changes as they happen. A periodic relist backs it up; with a
// runtime that has no events, the relist is the only source.
//
// Words. An Update is news about one pod. Observed is the sum of all updates of one pod; the pod's
// worker owns it.
package pleg

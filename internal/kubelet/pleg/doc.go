// Package pleg says what the container runtime has of each pod. The CRI event stream carries changes as they happen; a
// relist (the pod lifecycle event generator of upstream's name) backs it up, and is the only source where the runtime has no events.
//
// Words: an Update is news about one pod; Observed is the sum of all updates of one pod, owned by the pod's worker.
package pleg

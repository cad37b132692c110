// Package kubelet is the node agent: it runs the pods that are bound to its node.
//
// In: pods from the sources (API server, folder of manifests, URL), runtime events over CRI. Out:
// calls to the container runtime, pod statuses, the Node object and its lease.
//
// The Kubelet admits each pod and starts a worker for it (package worker). Runtime events (package
// pleg), probes (probe) and new versions of the spec wake the worker. The worker acts on the
// container runtime over CRI and hands statuses to the status manager, which writes them at once.
// Further packages: the Node object and its lease (node), the node's HTTPS API (server), pulls and
// garbage collection of images (images), plugins for their credentials (credentials), eviction
// (eviction), the end of pods with the machine (shutdown).
//
// See docs/adr/0011-event-driven-node-agent.md.
package kubelet

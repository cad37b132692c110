// Package kubelet is the node agent: it runs the pods that are bound to its node.
//
// The way of a pod: sources (API server, folder of manifests, URL) hand pods to the Kubelet, which admits them to the node and gives each a
// worker (package worker). Runtime events (package pleg), probes (probe) and new versions of the spec wake the worker; it acts on the
// container runtime over CRI and hands statuses to the status manager, which writes them at once. Around this: the node's own
// object and lease (node), the node's HTTPS API (server), garbage collection (images), eviction (eviction).
//
// The decision behind it is docs/adr/0011-event-driven-node-agent.md.
package kubelet

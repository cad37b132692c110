// Package node connects clients to kubelets, pods and Services: logs, exec, attach, port-forward
// and the proxy subresources. It also reads the usage of nodes and pods from kubelets.
//
// The Connector has the transports and finds addresses. A connection is a request that becomes a
// stream or is proxied. Addresses come from objects that users may write; the Connector checks that
// a Service's endpoint belongs to a pod, and refuses loopback and link-local addresses.
package node

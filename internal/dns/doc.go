// Package dns is the cluster's DNS, in process on every node: the Kubernetes DNS specification 1.1 for Services and
// pods, forwarding to the host's resolvers for the rest. See docs/adr/0012-pod-network.md.
//
// In: Services, EndpointSlices, Namespaces, the Nodes; records are read from their Views when asked for, so there is no second
// copy to fall behind. Out: answers on the node's gateway address; the Service kube-system/kube-dns and one EndpointSlice for each
// node, with a hint for that node, so that the proxy keeps queries on the node while it can answer.
package dns

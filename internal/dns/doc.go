// Package dns is the cluster's DNS, which runs in process on every node. It implements the
// Kubernetes DNS specification 1.1 for Services and pods and forwards other names to the host's
// resolvers. See docs/adr/0012-pod-network.md.
//
// In: Services, EndpointSlices, Namespaces, Nodes. Each query reads their Views, so there is no
// second copy that could be stale. Out: answers on the node's gateway address; the Service
// kube-system/kube-dns and one EndpointSlice per node. The slice has a hint for its node, so the
// proxy keeps queries on the node while that node answers. With a Ring of spans, it also notes when
// a changed Service, or an EndpointSlice of a headless one, is answered.
package dns

// Package loadbalancer gives addresses to Services of type LoadBalancer. See
// docs/adr/0046-addresses-of-load-balancers.md; package announce makes addresses from pools
// reachable.
//
// Words. A handled Service has no loadBalancerClass, or knarr's own. A pool is a set of ranges for
// some Services. A holder is a Service whose status has addresses from here. A round decides about
// all handled Services at once.
//
// In: Services, Nodes, EndpointSlices, and LoadBalancerPools if they are wanted. Out:
// status.loadBalancer and a condition of Services, and Events that explain pending addresses.
// decide (pure) computes all addresses. The status of Services is the only memory: a restart
// continues with it, and a deleted Service has freed its addresses.
package loadbalancer

// Package hollow simulates nodes. A hollow node has a Node object with capacity, conditions and a
// lease. Its pods get the statuses that a kubelet would report, but there are no containers.
// knarrtest uses it. It works over any client.Interface.
//
// Words. A fate defines what happens to a pod's containers; by default they run until the pod is
// deleted.
//
// In: the node's own Node object and the pods that are bound to it. Out: the Node, its lease, pods'
// statuses, and the deletion of ended pods.
//
// Decide is pure: it computes a pod's next status from the current one, the fate and the time. All
// state is in the status, so a restarted hollow node continues where it stopped.
package hollow

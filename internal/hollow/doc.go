// Package hollow is nodes that run pods on paper: a Node object with capacity, conditions and a
// lease, and pods whose statuses go the way that a kubelet's would, without containers. knarrtest
// uses it; it works over any client.Interface.
//
// Words: a fate is what becomes of a pod's containers; the default is that they run until the pod
// is deleted. In:    the node's own Node object and the pods that are bound to it. Out:   the Node,
// its lease, pods' statuses, and the deletion of pods that have ended.
//
// Decide is pure: it makes a pod's next status of the present one, the fate and the time. The state
// lies in the status, so a hollow node that starts anew goes on where the last one ended.
package hollow

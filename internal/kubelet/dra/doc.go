// Package dra prepares the devices of ResourceClaims on the node (KEP-4381).
//
// In: drivers and pods with claims. Out: calls of the drivers, CDI devices for containers, and the
// health of devices.
//
// Words:
//
//   - A driver registers by a socket in the plugin registry (type DRAPlugin). During an update, a
//     driver has two sockets; the newest is used.
//   - A claim is prepared when its drivers have made its devices available on this node.
//     NodePrepareResources is called before the pod's first container, NodeUnprepareResources after
//     the last one has ended.
//   - A device has CDI ids. The container runtime knows what to do with them.
//
// The file dra_manager_state has all claims that may be prepared. It is written before a driver is
// called, so that a claim is unprepared in any case.
//
// A driver that is gone for longer than a grace time loses its ResourceSlices, so that the
// scheduler does not use them any more.
//
// See docs/adr/0051-drivers-of-dynamic-resources.md.
package dra

// Package devices gives devices of device plugins to containers.
//
// In: device plugins (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1) and pods. Out: the node's
// extended resources, and what a container needs to use its devices.
//
// Words:
//
//   - A resource is the name that pods request, such as example.com/gpu. One plugin serves it.
//   - A device is one unit of a resource, named by the plugin. Only healthy devices are allocated.
//   - An allocation is the devices of one resource that one container holds, with the plugin's
//     answer. Allocations are in the file kubelet_internal_checkpoint before the container starts.
//
// A plugin registers itself at the socket kubelet.sock in Manager.Dir, or its socket is in the
// plugin registry. The manager then follows the plugin's stream of devices. When the stream ends,
// the devices are unhealthy: the node's allocatable is zero. After a grace time the capacity is
// zero too. Containers keep their devices.
//
// See docs/adr/0050-devices-of-pods.md.
package devices

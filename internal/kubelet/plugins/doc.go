// Package plugins finds plugins by their sockets and registers them. Drivers of devices, of dynamic
// resources and of storage put a socket into the node agent's folder plugins_registry.
//
// In: sockets that appear and disappear in a folder. Out: calls of the Handler for the plugin's
// type.
//
// Each socket has a goroutine. It asks the plugin for its name and type, calls the handler and
// tells the plugin the result. After a failure it tries again, later each time. When the socket
// disappears or is replaced, the goroutine deregisters the plugin and ends. A plugin that hangs
// delays no other plugin.
//
// The protocol is k8s.io/kubelet/pkg/apis/pluginregistration/v1.
package plugins

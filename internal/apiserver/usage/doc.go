// Package usage measures the CPU and memory usage of nodes and pods for metrics.k8s.io (API
// reference "NodeMetrics", "PodMetrics"), which upstream leaves to metrics-server.
//
// Words. A reading is what a node's kubelet reports at one moment (/metrics/resource): counters of
// CPU time and amounts of memory. A usage results from two readings of a node: the CPU time between
// them, and the memory of the later one. The window is the time between them.
//
// A Meter reads nothing until it is called. The first caller waits for two readings, a little more
// than a second. A caller soon afterwards gets the last usage, and one that calls every few seconds
// (the pod autoscaler) waits for one reading. Concurrent callers share a measurement. The Meter
// keeps one reading and one usage per node that was requested. See
// docs/adr/0028-resource-metrics.md.
package usage

// Package usage measures what nodes and pods use of CPU and memory, for the kinds of metrics.k8s.io (API reference "NodeMetrics",
// "PodMetrics"), which upstream leaves to metrics-server.
//
// Words. A reading is what a node's kubelet tells at one moment (/metrics/resource): counters of CPU time and amounts of memory. Usage is what two
// readings of a node tell: CPU time that has passed between them, and the memory of the later one. The window is how long that was.
//
// A Meter asks nobody until it is asked itself. Who asks first waits for two readings, a little more than a second; who asks again soon gets
// what was measured, and who asks every few seconds (the autoscaler of pods) waits for one. Several who ask at once share a measurement. What is
// kept is one reading and one usage per node that was asked about. See docs/adr/0028-resource-metrics.md.
package usage

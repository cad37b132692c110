// Package measure counts and times what the node agent does, for /metrics and /metrics/probes.
// Names and labels are upstream's; docs/reference/node-metrics.md lists them.
//
// Every node agent has a Metrics with registries of its own, because several components run in one
// process and each must only expose its own metrics. Labels take values of fixed sets. The
// exceptions are containers and claims of this node, and they are forgotten with their pods.
package measure

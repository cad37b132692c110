// Package mixin holds a test that takes the queries of kubernetes-mixin, as kube-prometheus
// configures them, and finds none empty against a cluster of knarr with pods, claims and probes.
//
// queries.txt lists the queries: the recording rules, and one line for each panel of the dashboards
// of kubelets, pods, namespaces, workloads, nodes, volumes, networks and the control plane. They
// state which metrics, labels and aggregations each of them needs. The facts are taken from
// https://github.com/kubernetes-monitoring/kubernetes-mixin and
// https://github.com/prometheus-operator/kube-prometheus (both Apache-2.0).
//
// The test starts a cluster in namespaces of its own, with node-exporter in a pod, scrapes it as
// Prometheus would, and evaluates the queries with Prometheus' own engine. The series of
// kube-state-metrics that queries join with are made from the API's objects (states.go).
//
// It is a module of its own, because Prometheus needs other versions of libraries than the
// product. It needs root and `make build`; `make mixin` runs it.
package mixin

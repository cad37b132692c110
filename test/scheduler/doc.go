// Package scheduler compares the decisions of knarr's scheduler with those of upstream's
// kube-scheduler. A seeded generator makes a cluster and a pod (a Case); both schedulers decide
// about it in this process, without an API server. Each gives a Verdict: the refusals by node, the
// scores by plugin, the devices of claims, the message and the outcome of preemption.
//
// A difference is a bug, or docs/reference/differences.md explains it. A failing case is made
// smaller while it still fails, and is printed as YAML with both verdicts.
//
// `make test` compares a few hundred cases; `make decisions` compares many.
package scheduler

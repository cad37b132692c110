package controllers

import (
	"cmp"
	"testing"
)

// Alerts and dashboards filter Events by their source. These are the sources of upstream's
// controllers v1.36.3.
func TestEventSourcesAreUpstreams(t *testing.T) {
	want := map[string]string{
		"replicaset-controller": "replicaset-controller", "replicationcontroller-controller": "replication-controller", "deployment-controller": "deployment-controller",
		"daemonset-controller": "daemonset-controller", "statefulset-controller": "statefulset-controller", "job-controller": "job-controller", "cronjob-controller": "cronjob-controller",
		"endpointslice-controller": "endpoint-slice-controller", "endpoints-controller": "endpoint-controller", "endpointslice-mirroring-controller": "endpoint-slice-mirroring-controller",
		"ephemeral-volume-controller": "ephemeral_volume", "resourceclaim-controller": "resource_claim", "horizontal-pod-autoscaler-controller": "horizontal-pod-autoscaler",
		"persistentvolume-binder-controller": "persistentvolume-controller", "persistentvolume-attach-detach-controller": "attachdetach-controller",
		"disruption-controller": "controllermanager", "node-lifecycle-controller": "node-controller", "node-ipam-controller": "cidrAllocator",
		"taint-eviction-controller": "taint-eviction-controller", "garbage-collector-controller": "garbage-collector-controller",
	}
	for _, s := range All(NewMetrics()) {
		if source, ok := want[s.Name]; ok && cmp.Or(s.EventSource, s.Name) != source {
			t.Errorf("events of %s are from %q, want %q", s.Name, cmp.Or(s.EventSource, s.Name), source)
		}
		delete(want, s.Name)
	}
	if len(want) > 0 {
		t.Errorf("there are no such controllers: %v", want)
	}
}

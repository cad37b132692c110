package telemetry

import (
	"testing"

	"github.com/knarr-project/knarr/internal/store"
)

// TestKindOfKey: by the name in metrics, which may differ from that in the key.
func TestKindOfKey(t *testing.T) {
	for key, want := range map[string]string{
		"/registry/pods/default/p":                          "pods",
		"/registry/pods/":                                   "pods",
		"/registry/deployments/default/d":                   "deployments.apps",
		"/registry/minions/a":                               "nodes",
		"/registry/ingress/default/a":                       "ingresses.networking.k8s.io",
		"/registry/controllers/default/a":                   "replicationcontrollers",
		"/registry/services/specs/default/a":                "services",
		"/registry/services/endpoints/default/a":            "endpoints",
		"/registry/services/endpoints/":                     "endpoints",
		"/registry/events/default/a":                        "events",
		"/registry/ranges/serviceips":                       "ranges",
		"/registry/stable.example.com/crontabs/default/c":   "crontabs.stable.example.com",
		"/registry/apiregistration.k8s.io/apiservices/v1.x": "apiservices.apiregistration.k8s.io",
		"/registry/x.y":                                     "x.y",
		"elsewhere":                                         "elsewhere",
	} {
		if got := resourceOf(kindOfKey(key)).String(); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func TestCommitIsNamedAfterItsFirstOperation(t *testing.T) {
	const key = "/registry/pods/default/p"
	for name, tc := range map[string]struct {
		conditions []store.Condition
		op         store.Op
		want       storeOperation
	}{
		"a create":                   {[]store.Condition{{Key: key}}, store.Op{Key: key}, storeCreate},
		"an update":                  {[]store.Condition{{Key: key, ModRevision: 3}}, store.Op{Key: key}, storeUpdate},
		"an update besides a create": {[]store.Condition{{Key: "/registry/other"}, {Key: key, ModRevision: 3}}, store.Op{Key: key}, storeUpdate},
		"a deletion":                 {[]store.Condition{{Key: key, ModRevision: 3}}, store.Op{Key: key, Delete: true}, storeDelete},
	} {
		if got := operationOf(tc.conditions, &tc.op); got != tc.want {
			t.Errorf("%s: got %s", name, storeOperationNames[got])
		}
	}
}

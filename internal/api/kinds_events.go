package api

import (
	eventsv1 "k8s.io/api/events/v1"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventsKinds are the kinds of the group events.k8s.io.
var eventsKinds = []Kind{
	{
		Kind: eventsv1.SchemeGroupVersion.WithKind("Event"), Resource: "events", Singular: "event",
		Object: &eventsv1.Event{}, Namespaced: true, ShortNames: []string{"ev"}, Served: []string{"v1"},
		Prefix: "/registry/events", Alias: schema.GroupResource{Resource: "events"},
	},
}

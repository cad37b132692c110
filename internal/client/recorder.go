package client

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Recorder writes events.k8s.io Events about objects. Events with the same object, reason, action
// and note count up one series. It never blocks the caller.
type Recorder interface {
	// Eventf records an event; eventType is corev1.EventTypeNormal or Warning. related may be nil.
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// EventMaker is a Recorder that can also make an event for its caller to write.
type EventMaker interface {
	// Event returns the API object that Eventf would write; nil if regarding has no reference. Only
	// events that never happen again about their object fit: they begin no series.
	Event(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) *corev1.Event
}

// EventFor returns the API object of an event, or nil if the recorder cannot make one.
func EventFor(r Recorder, regarding, related runtime.Object, eventType, reason, action, note string, args ...any) *corev1.Event {
	if m, ok := r.(EventMaker); ok {
		return m.Event(regarding, related, eventType, reason, action, note, args...)
	}
	return nil
}

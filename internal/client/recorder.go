package client

import "k8s.io/apimachinery/pkg/runtime"

// Recorder writes events.k8s.io Events about objects. Events with the same object, reason, action
// and note count up one series. It never blocks the caller.
type Recorder interface {
	// Eventf records an event; eventType is corev1.EventTypeNormal or Warning. related may be nil.
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

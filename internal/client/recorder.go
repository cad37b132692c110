package client

import "k8s.io/apimachinery/pkg/runtime"

// Recorder writes events.k8s.io Events about objects. Events about the same object, reason, action and note are
// counted in one series instead of written again. It never blocks its caller.
type Recorder interface {
	// Eventf records an event; eventType is corev1.EventTypeNormal or Warning. related may be nil.
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

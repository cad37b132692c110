package fake

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Events keeps recorded events as "Type Reason object: note".
type Events struct {
	mu   sync.Mutex
	list []string
}

// Eventf implements client.Recorder.
func (e *Events) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	name := ""
	if r, ok := regarding.(*corev1.ObjectReference); ok {
		name = r.Name
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, fmt.Sprintf("%s %s %s: %s", eventType, reason, name, fmt.Sprintf(note, args...)))
}

// All lists the events so far.
func (e *Events) All() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.list...)
}

package audit

import (
	"encoding/json"
	"fmt"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const (
	annotationTruncated = "audit.k8s.io/truncated"
	truncated           = "true"
)

// truncating shrinks events for a destination that does not accept large ones.
type truncating struct {
	Sink
	maxEvent int
}

// Truncating returns a Sink whose events have at most maxEvent bytes of JSON. A larger event loses
// the objects of request and response; if it is still too large, it is lost.
func Truncating(sink Sink, maxEvent int) Sink { return &truncating{sink, maxEvent} }

// Put implements Sink.
func (t *truncating) Put(event *auditv1.Event) error {
	if sizeOf(event) <= t.maxEvent {
		return t.Sink.Put(event)
	}
	small := *event // shallow: other sinks get the original event
	small.RequestObject, small.ResponseObject = nil, nil
	small.Annotations = make(map[string]string, len(event.Annotations)+1)
	for key, value := range event.Annotations {
		small.Annotations[key] = value
	}
	small.Annotations[annotationTruncated] = truncated
	if size := sizeOf(&small); size > t.maxEvent {
		return fmt.Errorf("the event has %d bytes without its objects, %d are allowed", size, t.maxEvent)
	}
	return t.Sink.Put(&small)
}

// sizeOf returns the size of an event's encoding in bytes.
func sizeOf(event *auditv1.Event) int {
	data, err := json.Marshal(event)
	if err != nil {
		return 0 // the writer reports the error
	}
	return len(data)
}

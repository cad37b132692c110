package audit

import (
	"sync/atomic"
	"time"
)

// Part is a part of a request's duration. As upstream, only slow requests are annotated with their
// parts. The names are those of the annotations that k8s.io/apiserver/pkg/endpoints/request
// documents (LatencyTrackers).
type Part int

// Parts of a request's duration. Repeated parts are added up, except for validating webhooks.
const (
	Authentication Part = iota
	Impersonation
	Queue // waiting for seats
	Authorization
	MutatingWebhooks
	ValidatingWebhooks // of concurrent ones, the longest
	Store
	Decode // of objects from the store
	Serialize
	Write
	parts
)

const (
	latencyPrefix = "apiserver.latency.k8s.io/"
	// slowRequest is the duration from which requests are annotated with their parts.
	slowRequest = 500 * time.Millisecond
)

var partNames = [parts]string{
	"authentication", "impersonation", "apf-queue-wait", "authorization", "mutating-webhook", "validating-webhook", "etcd", "decode-response-object",
	"serialize-response-object", "response-write",
}

// latency is the time that a request has spent so far, in nanoseconds by part.
type latency [parts]atomic.Int64

// AddLatency adds to the time of a part.
func (rec *Record) AddLatency(part Part, took time.Duration) {
	if rec != nil {
		rec.latency[part].Add(int64(took))
	}
}

// Authenticated sets the duration of authentication, which precedes the record.
func (rec *Record) Authenticated(took time.Duration) {
	if rec != nil {
		rec.AddLatency(Authentication, took)
		rec.authentication = took
	}
}

// Webhooks implements admission.Stopwatch. Validating webhooks run concurrently, also those of a
// collection's objects: only the longest counts.
func (rec *Record) Webhooks(mutating bool, took time.Duration) {
	switch {
	case mutating:
		rec.AddLatency(MutatingWebhooks, took)
	case rec != nil:
		RaiseTo(&rec.latency[ValidatingWebhooks], took)
	}
}

// RaiseTo raises longest, in nanoseconds, to took.
func RaiseTo(longest *atomic.Int64, took time.Duration) {
	for {
		have := longest.Load()
		if have >= int64(took) || longest.CompareAndSwap(have, int64(took)) {
			return
		}
	}
}

// LongRunning marks a long-running request, such as a watch or stream. Its duration is not
// explained.
func (rec *Record) LongRunning() {
	if rec != nil {
		rec.longRunning = true
	}
}

// annotateLatency annotates a slow request with the durations of its parts; parts without any are
// left out.
func (rec *Record) annotateLatency(annotations map[string]string, total time.Duration) {
	if total <= slowRequest || rec.longRunning {
		return
	}
	annotations[latencyPrefix+"total"] = total.String()
	for part, name := range partNames {
		if took := time.Duration(rec.latency[part].Load()); took > 0 {
			annotations[latencyPrefix+name] = took.String()
		}
	}
}

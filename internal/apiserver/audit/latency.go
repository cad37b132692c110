package audit

import (
	"sync/atomic"
	"time"
)

// Part is where the time of a request went. The names, and that only slow requests have them, are those of the annotations that
// k8s.io/apiserver/pkg/endpoints/request documents (LatencyTrackers).
type Part int

// Parts of a request's time. What there is several times of is added up, but for validating webhooks.
const (
	Authentication Part = iota
	Impersonation
	Queue // waiting for seats
	Authorization
	MutatingWebhooks
	ValidatingWebhooks // of those that are asked at once, the longest
	Store
	Decode // of what came from the store
	Serialize
	Write
	parts
)

const (
	latencyPrefix = "apiserver.latency.k8s.io/"
	// slow requests are told where their time went.
	slow = 500 * time.Millisecond
)

var partNames = [parts]string{
	"authentication", "impersonation", "apf-queue-wait", "authorization", "mutating-webhook", "validating-webhook", "etcd", "decode-response-object",
	"serialize-response-object", "response-write",
}

// latency is the time that a request has spent so far, in nanoseconds by part.
type latency [parts]atomic.Int64

// Spent adds to the time that a part of the request has taken.
func (rec *Record) Spent(part Part, took time.Duration) {
	if rec != nil {
		rec.latency[part].Add(int64(took))
	}
}

// Authenticated says how long it took to find out who it is, which was before there was a record.
func (rec *Record) Authenticated(took time.Duration) {
	if rec != nil {
		rec.Spent(Authentication, took)
		rec.before = took
	}
}

// Webhooks implements admission.Stopwatch. Validating webhooks are asked at once, also those of several objects of a collection: the longest counts.
func (rec *Record) Webhooks(mutating bool, took time.Duration) {
	switch {
	case mutating:
		rec.Spent(MutatingWebhooks, took)
	case rec != nil:
		AtLeast(&rec.latency[ValidatingWebhooks], took)
	}
}

// AtLeast raises a time, in nanoseconds, to what something took.
func AtLeast(longest *atomic.Int64, took time.Duration) {
	for {
		have := longest.Load()
		if have >= int64(took) || longest.CompareAndSwap(have, int64(took)) {
			return
		}
	}
}

// LivesLong says that how long the request takes is for its ends to decide: a watch, a stream.
func (rec *Record) LivesLong() {
	if rec != nil {
		rec.livesLong = true
	}
}

// explain adds to the annotations of a slow request where its time went; parts that took none are left out.
func (rec *Record) explain(annotations map[string]string, total time.Duration) {
	if total <= slow || rec.livesLong {
		return
	}
	annotations[latencyPrefix+"total"] = total.String()
	for part, name := range partNames {
		if took := time.Duration(rec.latency[part].Load()); took > 0 {
			annotations[latencyPrefix+name] = took.String()
		}
	}
}

package causes

import (
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/insight/because"
)

// Effect is what a write did to its object.
type Effect string

const (
	Created  Effect = "created"
	Changed  Effect = "changed"
	Deleting Effect = "deleting" // marked: finalizers or a grace period delay the removal
	Removed  Effect = "removed"
)

// effects are the encoded numbers of Effects. The order is part of the format.
var effects = []Effect{Created, Changed, Deleting, Removed}

// Object names an object of the API.
type Object struct {
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Record is one committed write.
type Record struct {
	// Revision is the store's revision of the write: the resourceVersion that the object got, or
	// the revision of its removal.
	Revision int64 `json:"revision"`
	// Time is when the write was committed, in microseconds of the server's clock.
	Time time.Time `json:"time"`
	Object
	Subresource string `json:"subresource,omitempty"`
	UID         string `json:"uid,omitempty"`
	// Owner is the UID of the object's controller, from its ownerReferences.
	Owner string `json:"owner,omitempty"`
	// Verb is the request's verb: create, update, patch, apply, delete or deletecollection.
	Verb   string `json:"verb"`
	Effect Effect `json:"effect"`
	// Actor is the authenticated (or impersonated) user; Manager is the field manager.
	Actor   string `json:"actor,omitempty"`
	Manager string `json:"manager,omitempty"`
	// Request is the audit ID of the request; "" for a call in the process.
	Request string `json:"request,omitempty"`
	// Because are the revisions that the writer gave as its causes.
	Because because.Revisions `json:"because"`
	// Note says how the writer decided, such as the scores of the scheduler; "" for most writes.
	Note string `json:"note,omitempty"`
	// Trace is the W3C traceparent of the request: of the API server's span if it records spans,
	// else of the client's. It is "" for most writes.
	Trace string `json:"traceparent,omitempty"`
	// Inferred says that the writer gave no causes, and that Because is a guess. It is set in
	// answers only.
	Inferred bool `json:"inferred,omitempty"`
}

// components are the prefixes of users that write because of other writes. A write of another user
// begins a story.
var components = []string{
	"system:node:", "system:kube-", "system:apiserver", "system:knarr", "system:serviceaccount:kube-system:",
}

// IsComponent reports whether the actor is a part of the cluster. Controllers that a user has
// installed are not: their writes may begin a story.
func IsComponent(actor string) bool {
	for _, prefix := range components {
		if strings.HasPrefix(actor, prefix) {
			return true
		}
	}
	return false
}

// Begins reports whether the write begins a story: a request of a user, without causes.
func (r *Record) Begins() bool {
	return r.Because.Len() == 0 && r.Request != "" && !IsComponent(r.Actor)
}

// texts is the number of strings of a Record that repeat in others.
const texts = 10

// maxText bounds the strings of a Record, in bytes. Longer ones are cut.
const maxText = 512

// cut shortens long strings, so that a waiting Record's memory is bounded.
func (r *Record) cut() {
	r.Request, r.Note, r.Trace = bounded(r.Request), bounded(r.Note), bounded(r.Trace)
	for _, text := range r.texts() {
		*text = bounded(*text)
	}
}

func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.Clone(text[:maxText])
}

// texts returns the strings of a Record that repeat in others, in the order of the format.
func (r *Record) texts() [texts]*string {
	return [texts]*string{&r.Group, &r.Resource, &r.Subresource, &r.Namespace, &r.Name, &r.UID, &r.Owner, &r.Verb, &r.Actor, &r.Manager}
}

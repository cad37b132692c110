package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// Sink takes events. Put blocks the request only if its mode says so. Close writes the accepted
// events.
type Sink interface {
	Put(event *auditv1.Event) error
	Close() error
}

// Destination is a Sink with its settings in the log.
type Destination struct {
	Sink
	// Name is the metrics' label of the destination: "log" or "webhook".
	Name string
	// Strict refuses a request if its first event is not accepted.
	Strict bool
}

// Log is the policy and the destinations of one server.
type Log struct {
	Policy  *Policy
	Sinks   []Destination
	Metrics *Metrics
	Logger  *slog.Logger
	Now     func() time.Time
}

// Lost returns the function to call for events that a destination has accepted and could not write.
func (l *Log) Lost(destination string) Lost {
	return func(events int, err error) {
		l.Metrics.lost(destination, events)
		l.Logger.Error("audit events are lost", "to", destination, "events", events, "err", err)
	}
}

// Record is one request in progress. Safe for concurrent use; a nil Record does nothing.
type Record struct {
	log *Log
	decision

	mu    sync.Mutex
	event auditv1.Event
	ended bool

	latency        latency
	authentication time.Duration // duration of the request before the record began
	longRunning    bool
}

// Begin starts the record of a request; nil if it is not recorded. r is nil for a request by
// function call.
func (l *Log) Begin(id string, a *auth.Attributes, r *http.Request) *Record {
	if l == nil {
		return nil
	}
	d := l.Policy.decide(a)
	l.Metrics.level(d.level)
	if d.level == auditv1.LevelNone {
		return nil
	}
	rec := &Record{log: l, decision: d, event: auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:    d.level, AuditID: types.UID(id), Verb: a.Verb, User: auth.UserInfo(a.User), RequestURI: a.Path,
		RequestReceivedTimestamp: metav1.NewMicroTime(l.Now()), Annotations: map[string]string{},
	}}
	if a.IsResource() {
		rec.event.ObjectRef = &auditv1.ObjectReference{
			Resource: a.Resource, Namespace: a.Namespace, Name: a.Name, APIGroup: a.Group, APIVersion: a.Version, Subresource: a.Subresource,
		}
	}
	if r == nil {
		rec.event.RequestURI, rec.event.UserAgent = pathOf(a), "knarr"
	} else {
		rec.event.RequestURI, rec.event.UserAgent, rec.event.SourceIPs = r.URL.RequestURI(), r.UserAgent(), sources(r)
	}
	return rec
}

// pathOf returns the path that a request by function call would have over HTTP.
func pathOf(a *auth.Attributes) string {
	path := "/apis/" + a.Group + "/" + a.Version
	if a.Group == "" {
		path = "/api/" + a.Version
	}
	if a.Namespace != "" && a.Resource != "namespaces" {
		path += "/namespaces/" + a.Namespace
	}
	for _, part := range []string{a.Resource, a.Name, a.Subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

const maxUserAgent = 1024

// sources returns the addresses that a request came from, those named by proxies first.
func sources(r *http.Request) (ips []string) {
	add := func(text string) {
		if ip := net.ParseIP(strings.TrimSpace(text)); ip != nil && !slices.Contains(ips, ip.String()) {
			ips = append(ips, ip.String())
		}
	}
	for part := range strings.SplitSeq(r.Header.Get("X-Forwarded-For"), ",") {
		add(part)
	}
	add(r.Header.Get("X-Real-Ip"))
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		add(host)
	}
	return ips
}

// ErrNotStored means that a strict destination has not accepted the request's event.
var ErrNotStored = errors.New("failed to store audit event")

// Received is the stage at which a request has arrived. If it returns an error, the request must be
// refused with it.
func (rec *Record) Received() error {
	if rec.stage(auditv1.StageRequestReceived, 0) {
		return nil
	}
	rec.log.Metrics.reject()
	return ErrNotStored
}

// Stage creates an event with the current state of the record.
func (rec *Record) Stage(stage auditv1.Stage, code int) { rec.stage(stage, code) }

// stage reports whether all strict destinations have accepted the event.
func (rec *Record) stage(stage auditv1.Stage, code int) (ok bool) {
	if rec == nil {
		return true
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.ended {
		return true
	}
	rec.ended = stage == auditv1.StageResponseComplete || stage == auditv1.StagePanic
	if slices.Contains(rec.omit, stage) {
		return true
	}
	event := rec.event.DeepCopy()
	event.RequestReceivedTimestamp.Time = event.RequestReceivedTimestamp.Add(-rec.authentication)
	event.Stage, event.StageTimestamp = stage, metav1.NewMicroTime(rec.log.Now())
	if rec.ended {
		rec.annotateLatency(event.Annotations, event.StageTimestamp.Sub(event.RequestReceivedTimestamp.Time))
	}
	if len(event.UserAgent) > maxUserAgent {
		event.UserAgent = event.UserAgent[:maxUserAgent] + "...TRUNCATED"
	}
	if stage != auditv1.StageRequestReceived {
		if event.ResponseStatus == nil {
			event.ResponseStatus = &metav1.Status{}
		}
		if event.ResponseStatus.Code == 0 {
			event.ResponseStatus.Code = int32(code)
		}
	}
	rec.log.Metrics.event()
	ok = true
	for _, to := range rec.log.Sinks {
		if err := to.Put(event); err != nil {
			rec.log.Metrics.lost(to.Name, 1)
			rec.log.Logger.Error("an audit event is lost", "to", to.Name, "auditID", event.AuditID, "stage", stage, "err", err)
			ok = ok && !to.Strict
		}
	}
	return ok
}

// Annotate adds an annotation to the record. Only the first value of a key counts.
func (rec *Record) Annotate(key, value string) {
	if rec == nil {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if _, ok := rec.event.Annotations[key]; !ok {
		rec.event.Annotations[key] = value
	}
}

// Impersonate sets the impersonated user.
func (rec *Record) Impersonate(user auth.User, constraint string) {
	if rec == nil {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	info := auth.UserInfo(user)
	rec.event.ImpersonatedUser = &info
	if constraint != "" {
		rec.event.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
	}
}

// Identify completes the object's reference, as far as the path lacks it: the name of a created
// object, its UID and version.
func (rec *Record) Identify(object metav1.Object) {
	if rec == nil {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	ref := rec.event.ObjectRef
	if ref == nil {
		return
	}
	ref.Name = cmp.Or(ref.Name, object.GetName())
	ref.UID, ref.ResourceVersion = object.GetUID(), object.GetResourceVersion()
}

// Status sets the response's Status: the reason of the failure, or the result.
func (rec *Record) Status(status *metav1.Status) {
	if rec == nil {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.event.ResponseStatus = status.DeepCopy()
	rec.event.ResponseStatus.TypeMeta, rec.event.ResponseStatus.ListMeta = metav1.TypeMeta{}, metav1.ListMeta{}
}

// WantsRequest reports whether the record needs the request's object, as JSON.
func (rec *Record) WantsRequest() bool {
	return rec != nil && (rec.level == auditv1.LevelRequest || rec.level == auditv1.LevelRequestResponse)
}

// WantsResponse reports whether the record needs the response's object, as JSON.
func (rec *Record) WantsResponse() bool {
	return rec != nil && rec.level == auditv1.LevelRequestResponse
}

// Request sets the request's object, as JSON.
func (rec *Record) Request(object []byte) {
	if rec.WantsRequest() {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.event.RequestObject = rec.unknown(object)
	}
}

// Response sets the response's object, as JSON.
func (rec *Record) Response(object []byte) {
	if rec.WantsResponse() {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.event.ResponseObject = rec.unknown(object)
	}
}

func (rec *Record) unknown(object []byte) *runtime.Unknown {
	if rec.omitManagedFields {
		object = withoutManagedFields(object)
	}
	return &runtime.Unknown{Raw: slices.Clone(object), ContentType: runtime.ContentTypeJSON}
}

// withoutManagedFields removes metadata.managedFields from an object, or from each item of a list
// or table.
func withoutManagedFields(object []byte) []byte {
	var fields map[string]any
	numbers := json.NewDecoder(bytes.NewReader(object))
	numbers.UseNumber() // otherwise large numbers are rounded
	if numbers.Decode(&fields) != nil {
		return object
	}
	strip := func(of any) {
		if m, ok := of.(map[string]any); ok {
			if metadata, ok := m["metadata"].(map[string]any); ok {
				delete(metadata, "managedFields")
			}
		}
	}
	strip(fields)
	if items, ok := fields["items"].([]any); ok {
		for _, item := range items {
			strip(item)
		}
	}
	if rows, ok := fields["rows"].([]any); ok {
		for _, row := range rows {
			if row, ok := row.(map[string]any); ok {
				strip(row["object"])
			}
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return object
	}
	return out
}

// Close writes the events that the sinks still hold.
func (l *Log) Close() {
	if l == nil {
		return
	}
	for _, sink := range l.Sinks {
		if err := sink.Close(); err != nil {
			l.Logger.Error("audit events may be lost", "err", err)
		}
	}
}

type recordKey struct{}

// With returns a context with the request's record.
func With(ctx context.Context, rec *Record) context.Context {
	if rec == nil {
		return ctx
	}
	return context.WithValue(ctx, recordKey{}, rec)
}

// From returns the request's record, or nil.
func From(ctx context.Context) *Record {
	rec, _ := ctx.Value(recordKey{}).(*Record)
	return rec
}

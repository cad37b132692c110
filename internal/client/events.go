package client

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/knarr-project/knarr/internal/api"
)

const (
	// eventQueue is the number of events that may wait to be written. More are dropped: events must
	// not stall their sources.
	eventQueue = 1000
	// seriesLife is how long after its last event a series still counts up, as in upstream's
	// recorder.
	seriesLife = 6 * time.Minute
	// seriesBurst is the number of events of a series that are written at once. After these, the
	// series is written once in each seriesPace.
	seriesBurst = 5
	seriesPace  = 30 * time.Second
	// maxNote is the maximum length of a note in the API, in bytes.
	maxNote = 1024
)

// EventRecorder is the Recorder. One goroutine (Run) writes the events through an Interface. Like
// the events of upstream's kubelet and controllers they have the older fields: source, count and
// timestamps. Clients tell them from newer events by the missing eventTime.
type EventRecorder struct {
	client    Interface
	component string
	host      string
	// newer events also have the fields of events.k8s.io/v1: eventTime, action, series
	newer bool
	now   func() time.Time
	// Limit bounds the rate of writes; nil means no limit. It is set before Run.
	Limit flowcontrol.RateLimiter

	queue   chan *recorded
	dropped atomic.Int64
}

var (
	_ Recorder   = (*EventRecorder)(nil)
	_ EventMaker = (*EventRecorder)(nil)
)

// recorded is one recorded event. Events with the same seriesKey form one series.
type recorded struct {
	seriesKey
	at      time.Time
	version string // resourceVersion of the regarding object
}

type seriesKey struct {
	regarding, related        corev1.ObjectReference // without resourceVersion
	eventType, reason, action string
	note                      string
}

// series is a written event that may happen again.
type series struct {
	namespace, name string
	first, last     time.Time
	count           int32
	written         int32 // the count in the API
	due             time.Time
}

// NewRecorder makes a recorder for a component ("kubelet") on a host. Run writes its events.
func NewRecorder(c Interface, component, host string) *EventRecorder {
	return &EventRecorder{client: c, component: component, host: host, now: time.Now, queue: make(chan *recorded, eventQueue)}
}

// NewSeriesRecorder makes a recorder for a component that upstream writes with the fields of
// events.k8s.io/v1, such as the scheduler. The events also have the older fields, so that each
// reader finds its own.
func NewSeriesRecorder(c Interface, component, host string) *EventRecorder {
	r := NewRecorder(c, component, host)
	r.newer = true
	return r
}

// Eventf records an event. regarding and related may also be a *corev1.ObjectReference.
func (r *EventRecorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	e := r.recorded(regarding, related, eventType, reason, action, note, args)
	if e == nil {
		return
	}
	select {
	case r.queue <- e:
	default:
		if r.dropped.Add(1) == 1 {
			slog.Warn("events are recorded faster than they can be written; some are dropped", "component", r.component)
		}
	}
}

// Event implements EventMaker.
func (r *EventRecorder) Event(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) *corev1.Event {
	if e := r.recorded(regarding, related, eventType, reason, action, note, args); e != nil {
		return r.event(e)
	}
	return nil
}

// recorded describes an event; nil if regarding has no reference.
func (r *EventRecorder) recorded(regarding, related runtime.Object, eventType, reason, action, note string, args []any) *recorded {
	ref, err := reference(regarding)
	if err != nil {
		slog.Error("dropped an event: cannot refer to its object", "component", r.component, "reason", reason, "error", err)
		return nil
	}
	e := &recorded{at: r.now(), version: ref.ResourceVersion}
	ref.ResourceVersion = ""
	e.seriesKey = seriesKey{regarding: ref, eventType: eventType, reason: reason, action: action, note: fmt.Sprintf(note, args...)}
	if len(e.note) > maxNote {
		e.note = strings.ToValidUTF8(e.note[:maxNote-3], "") + "..."
	}
	if e.action == "" {
		e.action = reason
	}
	if related != nil {
		if other, err := reference(related); err == nil {
			other.ResourceVersion = ""
			e.related = other
		}
	}
	return e
}

// Run writes events until ctx ends.
func (r *EventRecorder) Run(ctx context.Context) {
	known := map[seriesKey]*series{}
	alarm := newAlarm(r.now())
	defer alarm.timer.Stop()
	for {
		select {
		case e := <-r.queue:
			r.take(ctx, known, e)
			if s := known[e.seriesKey]; s != nil {
				alarm.bring(s.next(), r.now())
			}
		case <-alarm.timer.C:
			r.flush(ctx, known)
			alarm.set(earliest(known, r.now()), r.now())
		case <-ctx.Done():
			return
		}
	}
}

// alarm is a timer that can be brought forward. Each event would otherwise have to look through all
// series for the one that is due first.
type alarm struct {
	timer *time.Timer
	at    time.Time
}

func newAlarm(now time.Time) *alarm {
	return &alarm{time.NewTimer(time.Hour), now.Add(time.Hour)}
}

func (a *alarm) set(at, now time.Time) {
	a.at = at
	a.timer.Reset(max(at.Sub(now), time.Second))
}

// bring brings the alarm forward, if it is later.
func (a *alarm) bring(at, now time.Time) {
	if at.Before(a.at) {
		a.set(at, now)
	}
}

// take writes an event, or counts it in its series.
func (r *EventRecorder) take(ctx context.Context, known map[seriesKey]*series, e *recorded) {
	s := known[e.seriesKey]
	if s == nil || e.at.Sub(s.last) > seriesLife {
		delete(known, e.seriesKey)
		if s = r.create(ctx, e); s != nil {
			known[e.seriesKey] = s
		}
		return
	}
	s.count++
	s.last = e.at
	if s.count <= seriesBurst || s.due.IsZero() || !e.at.Before(s.due) {
		r.update(ctx, known, e.seriesKey, s)
	}
}

// flush writes the counts that are due and forgets ended series.
func (r *EventRecorder) flush(ctx context.Context, known map[seriesKey]*series) {
	now := r.now()
	for key, s := range known {
		switch {
		case s.count > s.written && !now.Before(s.due):
			r.update(ctx, known, key, s)
		case s.count == s.written && now.Sub(s.last) > seriesLife:
			delete(known, key)
		}
	}
}

// next is when flush has work on the series.
func (s *series) next() time.Time {
	if s.count > s.written {
		return s.due
	}
	return s.last.Add(seriesLife)
}

// earliest is when flush has work on any series.
func earliest(known map[seriesKey]*series, now time.Time) time.Time {
	at := now.Add(time.Hour)
	for _, s := range known {
		if next := s.next(); next.Before(at) {
			at = next
		}
	}
	return at
}

// event returns the API object for the first event of a series.
func (r *EventRecorder) event(e *recorded) *corev1.Event {
	namespace := e.regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	at := metav1.NewTime(e.at)
	out := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", e.regarding.Name, e.at.UnixNano())},
		InvolvedObject: e.regarding,
		Reason:         e.reason, Message: e.note, Type: e.eventType,
		Source:         corev1.EventSource{Component: r.component, Host: r.host},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: r.component, ReportingInstance: r.host,
	}
	if r.newer {
		out.EventTime, out.Action, out.ReportingInstance = metav1.NewMicroTime(e.at), e.action, r.instance()
	}
	out.InvolvedObject.ResourceVersion = e.version
	if e.related != (corev1.ObjectReference{}) {
		out.Related = &e.related
	}
	return out
}

func (r *EventRecorder) instance() string {
	if r.host == "" {
		return r.component
	}
	return r.component + "-" + r.host
}

func (r *EventRecorder) create(ctx context.Context, e *recorded) *series {
	ev := r.event(e)
	err := r.try(ctx, func() error {
		_, err := Create(ctx, r.client, ev)
		if apierrors.IsAlreadyExists(err) { // a second event in the same nanosecond
			ev.Name += "-1"
		}
		return err
	})
	if err != nil {
		slog.Debug("an event was not written", "component", r.component, "regarding", e.regarding.Name, "reason", e.reason, "error", err)
		return nil
	}
	return &series{namespace: ev.Namespace, name: ev.Name, first: e.at, last: e.at, count: 1, written: 1}
}

func (r *EventRecorder) update(ctx context.Context, known map[seriesKey]*series, key seriesKey, s *series) {
	changed := map[string]any{"count": s.count, "lastTimestamp": metav1.NewTime(s.last)}
	if r.newer {
		changed["series"] = corev1.EventSeries{Count: s.count, LastObservedTime: metav1.NewMicroTime(s.last)}
	}
	patch, err := json.Marshal(changed)
	if err == nil {
		err = r.try(ctx, func() error {
			_, err := Patch[*corev1.Event](ctx, r.client, s.namespace, s.name, types.MergePatchType, patch)
			return err
		})
	}
	switch {
	case apierrors.IsNotFound(err): // it has expired; start a new series
		delete(known, key)
		if fresh := r.create(ctx, &recorded{seriesKey: key, at: s.last}); fresh != nil {
			known[key] = fresh
		}
		return
	case err != nil:
		slog.Debug("an event was not counted", "component", r.component, "event", s.name, "error", err)
	}
	s.written = s.count
	s.due = s.last.Add(seriesPace)
}

// try repeats a write after temporary failures.
func (r *EventRecorder) try(ctx context.Context, write func() error) error {
	wait := 50 * time.Millisecond
	for attempt := 1; ; attempt++ {
		if r.Limit != nil {
			if err := r.Limit.Wait(ctx); err != nil {
				return err
			}
		}
		err := write()
		passing := apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
			apierrors.IsTimeout(err) || apierrors.IsAlreadyExists(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
		if err == nil || !passing || attempt == 6 {
			return err
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
			return err
		}
	}
}

// reference returns a reference to the object.
func reference(obj runtime.Object) (corev1.ObjectReference, error) {
	if ref, ok := obj.(*corev1.ObjectReference); ok {
		return *ref, nil
	}
	if obj == nil {
		return corev1.ObjectReference{}, fmt.Errorf("no object")
	}
	acc, err := meta.Accessor(obj)
	if err != nil {
		return corev1.ObjectReference{}, err
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		if kinds, _, err := api.Scheme.ObjectKinds(obj); err == nil && len(kinds) > 0 {
			gvk = kinds[0]
		}
	}
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	return corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind, Namespace: acc.GetNamespace(), Name: acc.GetName(), UID: acc.GetUID(),
		ResourceVersion: acc.GetResourceVersion(),
	}, nil
}

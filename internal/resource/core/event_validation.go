package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// Limits of events in the API reference.
const (
	maxEventText = 128
	maxEventNote = 1024
	minSeries    = 2
)

// validateEvent checks an Event written through the core group. One with an eventTime must follow
// the rules of events.k8s.io.
func validateEvent(e *corev1.Event) field.ErrorList {
	if e.EventTime.IsZero() {
		return validateEventNamespace(e)
	}
	return validateNewEvent(e, "reportingComponent")
}

func validateEventUpdate(e, _ *corev1.Event) field.ErrorList { return validateEvent(e) }

// validateEventsEvent checks an Event written through events.k8s.io: complete, and without that
// group's deprecated fields.
func validateEventsEvent(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.EventTime.IsZero() {
		errs = append(errs, validateEventNamespace(e)...)
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	} else {
		errs = append(errs, validateNewEvent(e, "reportingController")...)
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
	}
	for _, old := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()}, {"count", e.Count != 0}, {"source", e.Source != corev1.EventSource{}},
	} {
		if old.set {
			errs = append(errs, field.Invalid(field.NewPath(old.name), "", "needs to be unset"))
		}
	}
	return append(errs, validateSeries(e.Series)...)
}

// validateEventsEventUpdate lets only the series of such an Event change.
func validateEventsEventUpdate(e, old *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.EventTime.IsZero() {
		errs = append(errs, validateEventNamespace(e)...)
	} else {
		errs = append(errs, validateNewEvent(e, "reportingController")...)
	}
	errs = append(errs, validateSeries(e.Series)...)
	if e.EventTime.UnixNano()/1000 != old.EventTime.UnixNano()/1000 {
		errs = append(errs, validate.Immutable(e.EventTime, old.EventTime, field.NewPath("eventTime"))...)
	}
	for _, f := range []struct {
		name    string
		is, was any
	}{
		{"involvedObject", e.InvolvedObject, old.InvolvedObject}, {"reason", e.Reason, old.Reason}, {"message", e.Message, old.Message},
		{"source", e.Source, old.Source}, {"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp}, {"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count}, {"type", e.Type, old.Type}, {"action", e.Action, old.Action}, {"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController}, {"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		errs = append(errs, validate.Immutable(f.is, f.was, field.NewPath(f.name))...)
	}
	return errs
}

func validateSeries(s *corev1.EventSeries) field.ErrorList {
	var errs field.ErrorList
	if s != nil && s.Count < minSeries {
		errs = append(errs, field.Invalid(field.NewPath("series", "count"), "", fmt.Sprintf("should be at least %d", minSeries)))
	}
	if s != nil && s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series", "lastObservedTime"), ""))
	}
	return errs
}

// validateNewEvent checks the fields that events.k8s.io requires; reporter is the version's name
// for the reporting component.
func validateNewEvent(e *corev1.Event, reporter string) field.ErrorList {
	var errs field.ErrorList
	if e.InvolvedObject.Namespace == "" && !clusterEvents(e.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), "", "does not match event.namespace"))
	}
	if e.ReportingController == "" {
		errs = append(errs, field.Required(field.NewPath(reporter), ""))
	}
	errs = append(errs, validate.Qualified(e.ReportingController, field.NewPath(reporter))...)
	for _, text := range []struct{ name, value string }{{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason}} {
		if text.value == "" {
			errs = append(errs, field.Required(field.NewPath(text.name), ""))
		}
		errs = append(errs, eventText(text.value, maxEventText, field.NewPath(text.name))...)
	}
	return append(errs, eventText(e.Message, maxEventNote, field.NewPath("message"))...)
}

func eventText(text string, most int, at *field.Path) field.ErrorList {
	if len(text) <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(at, "", fmt.Sprintf("can have at most %d characters", most))}
}

// clusterEvents reports whether Events about cluster-scoped objects may be in the namespace.
func clusterEvents(namespace string) bool {
	return namespace == metav1.NamespaceNone || namespace == metav1.NamespaceDefault || namespace == metav1.NamespaceSystem
}

// validateEventNamespace checks that an Event is in its object's namespace.
func validateEventNamespace(e *corev1.Event) field.ErrorList {
	at := field.NewPath("involvedObject", "namespace")
	if e.InvolvedObject.Namespace == "" {
		if !clusterEvents(e.Namespace) {
			return field.ErrorList{field.Invalid(at, e.InvolvedObject.Namespace, "does not match event.namespace")}
		}
		return validate.Invalids(field.NewPath("namespace"), e.Namespace, apivalidation.ValidateNamespaceName(e.Namespace, false))
	}
	if e.Namespace != e.InvolvedObject.Namespace {
		return field.ErrorList{field.Invalid(at, e.InvolvedObject.Namespace, "does not match event.namespace")}
	}
	return nil
}

package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func EventStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.AllowCreateOnUpdate = true
	s.ValidateName, s.LateMeta = strategy.PathSegment, true
	s.ValidateCreate = strategy.Checks(validateEvent)
	s.ValidateUpdate = strategy.ChecksBoth(validateEventUpdate)
	s.FieldNames = []string{
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
		"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
	}
	s.Fields = func(obj runtime.Object) fields.Set {
		e := obj.(*corev1.Event)
		source := e.Source.Component
		if source == "" {
			source = e.ReportingController
		}
		return fields.Set{
			"involvedObject.kind":            e.InvolvedObject.Kind,
			"involvedObject.namespace":       e.InvolvedObject.Namespace,
			"involvedObject.name":            e.InvolvedObject.Name,
			"involvedObject.uid":             string(e.InvolvedObject.UID),
			"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
			"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
			"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
			"reason":                         e.Reason,
			"reportingComponent":             e.ReportingController,
			"source":                         source,
			"type":                           e.Type,
		}
	}
	return strategy.Show(strategy.WithLooseFinalizers(s), eventColumns, eventRow)
}

// EventsGroupStrategy is for Events in the form of events.k8s.io.
func EventsGroupStrategy() *strategy.Strategy {
	s := EventStrategy()
	// events.k8s.io names Events as other objects are named
	s.ValidateName, s.LateMeta, s.LooseFinalizers = nil, false, false
	s.ValidateCreate = strategy.Checks(validateEventsEvent)
	s.ValidateUpdate = strategy.ChecksBoth(validateEventsEventUpdate)
	s.FieldAliases = map[string]string{"reportingController": "reportingComponent"}
	for _, name := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		s.FieldAliases["regarding."+name] = "involvedObject." + name
	}
	return s
}

var eventColumns = columns.Define("Last Seen@lastTimestamp", "Type@type", "Reason@reason", "Object@involvedObject", "+Subobject@involvedObject.fieldPath", "+Source@source", "Message@message",
	"+First Seen@firstTimestamp", "+Count@count", "+Name")

func eventRow(e *corev1.Event, now metav1.Time) []any {
	first := columns.Age(e.FirstTimestamp, now)
	if e.FirstTimestamp.IsZero() {
		first = columns.Age(metav1.Time(e.EventTime), now)
	}
	last := columns.Age(e.LastTimestamp, now)
	if e.LastTimestamp.IsZero() {
		last = first
	}
	count := max(e.Count, 1)
	if e.Series != nil {
		last, count = columns.Age(metav1.Time(e.Series.LastObservedTime), now), e.Series.Count
	}
	object := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		object += "/" + e.InvolvedObject.Name
	}
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	if host := e.Source.Host; host != "" {
		source += ", " + host
	} else if e.Source.Component == "" && e.ReportingInstance != "" {
		source += ", " + e.ReportingInstance
	}
	return []any{last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, source, strings.TrimSpace(e.Message), first, int64(count), e.Name}
}

package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	coreEvent = corev1.SchemeGroupVersion.WithKind("Event")
	newEvent  = eventsv1.SchemeGroupVersion.WithKind("Event")
)

// conversions lists the kinds that have more than one version: plain functions to and from the hub.
var conversions = map[conversion]func(runtime.Object) (runtime.Object, error){
	{coreEvent, newEvent}: func(o runtime.Object) (runtime.Object, error) { return eventToNew(o.(*corev1.Event)), nil },
	{newEvent, coreEvent}: func(o runtime.Object) (runtime.Object, error) { return eventToCore(o.(*eventsv1.Event)), nil },
}

// Events of both groups lie in the store as core Events; the two forms name the same things differently.
func eventToNew(in *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta: in.ObjectMeta, EventTime: in.EventTime, ReportingController: in.ReportingController,
		ReportingInstance: in.ReportingInstance, Action: in.Action, Reason: in.Reason, Regarding: in.InvolvedObject,
		Related: in.Related, Note: in.Message, Type: in.Type, DeprecatedSource: in.Source,
		DeprecatedFirstTimestamp: in.FirstTimestamp, DeprecatedLastTimestamp: in.LastTimestamp, DeprecatedCount: in.Count,
	}
	if in.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
	return out
}

func eventToCore(in *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta: in.ObjectMeta, EventTime: in.EventTime, ReportingController: in.ReportingController,
		ReportingInstance: in.ReportingInstance, Action: in.Action, Reason: in.Reason, InvolvedObject: in.Regarding,
		Related: in.Related, Message: in.Note, Type: in.Type, Source: in.DeprecatedSource,
		FirstTimestamp: in.DeprecatedFirstTimestamp, LastTimestamp: in.DeprecatedLastTimestamp, Count: in.DeprecatedCount,
	}
	if in.Series != nil {
		out.Series = &corev1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
	return out
}

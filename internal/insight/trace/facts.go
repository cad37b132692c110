package trace

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Facts are what the API and the nodes show of pods, by UID. A nil *Facts has none.
type Facts struct {
	Pods   map[string]*corev1.Pod
	Events map[string][]corev1.Event
	// Silent are the nodes that did not tell their spans, with the reasons.
	Silent map[string]string

	nodes map[string]string     // by UID of the pod, also of pods that are gone
	steps map[string][]nodeSpan // by UID of the pod
	rules []nodeSpan
}

func (f *Facts) nodeOf(uid string) string {
	if f == nil {
		return ""
	}
	if pod := f.Pods[uid]; pod != nil && pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	return f.nodes[uid]
}

// addSteps adds the steps of the node agent below a pod's hop.
func (f *Facts) addSteps(uid string, pod *Hop) {
	if f == nil || (pod.Object.Resource != "pods") || pod.Object.Group != "" {
		return
	}
	bound := boundAt(pod)
	maker := "node"
	if node := f.nodeOf(uid); node != "" {
		maker = "node:" + node
	}
	step := func(what string, begin, at time.Time, source Source) {
		if at.Before(pod.Begin.Add(-time.Second)) {
			return // before this story
		}
		if at.Before(bound) {
			at = bound // conditions are cut to seconds
		}
		if begin.Before(bound) {
			begin = bound
		}
		if begin.After(at) {
			begin = at
		}
		pod.Hops = append(pod.Hops, &Hop{Object: pod.Object, What: what, Maker: maker, Begin: begin, At: at, Source: source})
	}
	if f.addSpans(uid, step) {
		f.addWarnings(uid, step)
		return
	}
	first := f.addEvents(uid, bound, step)
	f.addConditions(uid, pod, bound, first, step)
}

// boundAt is when the pod was bound, or created if it was bound from the beginning.
func boundAt(pod *Hop) time.Time {
	for _, h := range pod.Hops {
		if strings.HasPrefix(h.What, "bound") {
			return h.At
		}
	}
	return pod.At
}

// addEvents adds the steps that events show. It returns the time of the first one.
func (f *Facts) addEvents(uid string, bound time.Time, step func(what string, begin, at time.Time, source Source)) (first time.Time) {
	events := slices.Clone(f.Events[uid])
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	began := map[string]time.Time{} // by container
	for i := range events {
		e := &events[i]
		at, container := eventTime(e), containerOf(e)
		if first.IsZero() && e.Reason != "Scheduled" && e.Reason != "FailedScheduling" {
			first = at
		}
		begin := cmp.Or(began[container], bound)
		switch e.Reason {
		case "Scheduled":
			continue
		case "Pulling", "Created":
		case "Pulled":
			step(pulled(e.Message), begin, at, FromEvent)
		case "Started":
			step("container "+container+" started", begin, at, FromEvent)
		case "Killing":
			step("container "+container+" stops", at, at, FromEvent)
		default:
			if e.Type == corev1.EventTypeWarning {
				step(e.Reason+": "+e.Message, at, at, FromEvent)
			}
			continue
		}
		if e.Reason != "Created" {
			began[container] = at
		}
	}
	return first
}

// addWarnings adds the warnings among the events, beside the spans of the node.
func (f *Facts) addWarnings(uid string, step func(what string, begin, at time.Time, source Source)) {
	for i := range f.Events[uid] {
		if e := &f.Events[uid][i]; e.Type == corev1.EventTypeWarning {
			at := eventTime(e)
			step(e.Reason+": "+e.Message, at, at, FromEvent)
		}
	}
}

// pulled says how an image came, from the event's message.
func pulled(message string) string {
	image := ""
	if _, rest, ok := strings.Cut(message, `"`); ok {
		image, _, _ = strings.Cut(rest, `"`)
	}
	if i := strings.LastIndexByte(image, '/'); i >= 0 {
		image = image[i+1:]
	}
	if strings.Contains(message, "already present") {
		return "image " + image + " is present"
	}
	return "image " + image + " pulled"
}

// containerOf returns the container in an event's field path, such as spec.containers{web}.
func containerOf(e *corev1.Event) string {
	_, rest, _ := strings.Cut(e.InvolvedObject.FieldPath, "{")
	return strings.TrimSuffix(rest, "}")
}

// eventTime is the time of an event's first occurrence. client-go's recorder, and knarr's, put the
// nanoseconds into the name, after the object's; the fields have seconds only.
func eventTime(e *corev1.Event) time.Time {
	seconds := e.FirstTimestamp.Time
	if seconds.IsZero() {
		return e.EventTime.Time
	}
	if i := strings.LastIndexByte(e.Name, '.'); i >= 0 {
		if nanos, err := strconv.ParseInt(e.Name[i+1:], 16, 64); err == nil {
			if at := time.Unix(0, nanos); at.Sub(seconds).Abs() <= 2*time.Second {
				return at
			}
		}
	}
	return seconds
}

// addConditions adds the steps that conditions show: the sandbox, and readiness.
func (f *Facts) addConditions(uid string, pod *Hop, bound, firstEvent time.Time, step func(what string, begin, at time.Time, source Source)) {
	if f.Pods[uid] == nil {
		return
	}
	for _, c := range f.Pods[uid].Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		at := c.LastTransitionTime.Time
		switch c.Type {
		case corev1.PodReadyToStartContainers:
			if !firstEvent.IsZero() && firstEvent.After(bound) && (at.After(firstEvent) || firstEvent.Sub(at) < time.Second) {
				at = firstEvent // containers are made after it
			}
			step("network and sandbox ready", bound, at, FromCondition)
		case corev1.PodReady:
			at = f.readyAt(pod, at)
			step("ready", lastStart(pod, bound), at, FromCondition)
		}
	}
}

// readyAt finds the write of the status that made the pod ready: the last one within the second of
// the condition. Without it, it is the condition's time.
func (f *Facts) readyAt(pod *Hop, second time.Time) time.Time {
	best := second
	for _, h := range pod.Hops {
		for _, at := range []time.Time{h.At, h.Last} {
			if h.What == whatStatus && !at.Before(second) && at.Sub(second) < 1200*time.Millisecond && at.After(best) {
				best = at
			}
		}
	}
	return best
}

// lastStart is when the last container started.
func lastStart(pod *Hop, bound time.Time) time.Time {
	last := bound
	for _, h := range pod.Hops {
		if strings.HasSuffix(h.What, " started") && h.At.After(last) {
			last = h.At
		}
	}
	return last
}

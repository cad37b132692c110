package worker

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/kubelet/images"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
)

// note keeps a span of the pod that ends now. Actions may call it.
func (w *Worker) note(pod *corev1.Pod, name, container, detail string, began time.Time, err error) {
	w.noteSpan(pod, spans.Span{Name: name, Container: container, Detail: detail, Begin: began}, err)
}

func (w *Worker) noteSpan(pod *corev1.Pod, s spans.Span, err error) {
	if w.Spans == nil {
		return
	}
	s.Namespace, s.Object, s.UID, s.End = pod.Namespace, pod.Name, string(pod.UID), w.Now()
	if err != nil {
		s.Error = err.Error()
	}
	w.Spans.Note(s)
}

// noteImage keeps the span of a container's image.
func (w *Worker) noteImage(pod *corev1.Pod, container, name string, image *images.Image, began time.Time, err error) {
	s := spans.Span{Name: spans.Pull, Container: container, Detail: name, Begin: began}
	if err == nil && !image.Pulled {
		s.Name = spans.Image
	} else if err == nil {
		s.Bytes = image.Bytes
	}
	w.noteSpan(pod, s, err)
}

// maxProbed bounds the probes of one pod whose last result is known.
const maxProbed = 64

// probeResults are the last results of a pod's probes. Probes call it beside each other.
type probeResults struct {
	mu   sync.Mutex
	last map[string]probe.Result // by container ID and kind
}

// changed records a result, and reports whether the one before was another.
func (p *probeResults) changed(t probe.Target, kind probe.Kind, r probe.Result) bool {
	key := fmt.Sprint(t.ID, "/", kind)
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, known := p.last[key]; known && last == r {
		return false
	}
	if p.last == nil || len(p.last) >= maxProbed {
		p.last = map[string]probe.Result{}
	}
	p.last[key] = r
	return true
}

// countProbe measures a probe, and keeps a span of each new result.
func (w *Worker) countProbe(t probe.Target, kind probe.Kind, r probe.Result, took time.Duration) {
	w.Metrics.Probed(t, kind, r, took)
	if w.Spans != nil && w.results.changed(t, kind, r) {
		w.note(t.Pod, spans.Probe, t.Container.Name, strings.ToLower(fmt.Sprint(kind))+" probe: "+string(r), w.Now().Add(-took), nil)
	}
}

// noteReady keeps a span if the pod becomes ready with this status. It begins with the start of the
// last container.
func (w *Worker) noteReady(s *corev1.PodStatus) {
	if w.Spans == nil || !isReady(s) || isReady(&w.old) {
		return
	}
	began := w.seen
	for _, c := range w.observed.Containers {
		if at := time.Unix(0, c.StartedAt); c.Running() && at.After(began) {
			began = at
		}
	}
	w.note(w.pod, spans.Ready, "", "", began, nil)
}

func isReady(s *corev1.PodStatus) bool {
	for i := range s.Conditions {
		if s.Conditions[i].Type == corev1.PodReady {
			return s.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

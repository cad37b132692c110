package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// eventSink takes what a recorder writes.
type eventSink struct {
	Interface
	mu      sync.Mutex
	created []*corev1.Event
	patches []string
	gone    bool
}

func (s *eventSink) Create(_ context.Context, _ schema.GroupVersionResource, _ string, obj runtime.Object, _ metav1.CreateOptions, _ ...string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created = append(s.created, obj.(*corev1.Event))
	return obj, nil
}

func (s *eventSink) Patch(_ context.Context, res schema.GroupVersionResource, _, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		s.gone = false
		return nil, apierrors.NewNotFound(res.GroupResource(), name)
	}
	s.patches = append(s.patches, name+" "+string(data))
	return &corev1.Event{}, nil
}

func TestRepeatedEventsFormOneSeries(t *testing.T) {
	sink := &eventSink{}
	r := NewRecorder(sink, "kubelet", "n1")
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	known := map[seriesKey]*series{}
	p := pod("a", "p", "", nil)
	record := func(rv, note string, args ...any) {
		p.ResourceVersion = rv
		r.Eventf(p, nil, corev1.EventTypeWarning, "BackOff", "", note, args...)
		r.take(t.Context(), known, <-r.queue)
	}

	record("1", "back-off %d", 5)
	record("2", "back-off %d", 5)
	record("2", "another")
	if len(sink.created) != 2 || len(sink.patches) != 1 {
		t.Fatalf("%d created, %d counted", len(sink.created), len(sink.patches))
	}
	e := sink.created[0]
	got := fmt.Sprint(e.Namespace, e.Reason, e.Message, e.Type, e.Action, e.Count, e.Source, e.ReportingController, e.ReportingInstance,
		e.InvolvedObject.Kind, e.InvolvedObject.APIVersion, e.InvolvedObject.UID, e.InvolvedObject.ResourceVersion)
	if want := "aBackOffback-off 5Warning1{kubelet n1}kubeletn1Podv1ap1"; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !e.EventTime.IsZero() {
		t.Error("it is one of events.k8s.io")
	}
	var patch struct {
		Count  int32
		Series *corev1.EventSeries
	}
	_, data, _ := strings.Cut(sink.patches[0], " ")
	if err := json.Unmarshal([]byte(data), &patch); err != nil || patch.Count != 2 || patch.Series != nil {
		t.Errorf("%s: %+v %v", data, patch, err)
	}

	for range 100 { // a burst is written a few times, then at intervals
		now = now.Add(100 * time.Millisecond)
		record("3", "back-off %d", 5)
	}
	if n := len(sink.patches); n != seriesBurst-1 {
		t.Errorf("%d updates for a hundred events in 10 s, want %d", n, seriesBurst-1)
	}
	now = now.Add(seriesPace)
	r.flush(t.Context(), known)
	if last := sink.patches[len(sink.patches)-1]; !strings.Contains(last, `"count":102`) {
		t.Errorf("the last count written: %s", last)
	}

	sink.gone = true // the event has expired
	now = now.Add(seriesPace)
	record("3", "back-off %d", 5)
	if len(sink.created) != 3 {
		t.Errorf("%d created after it had expired, want 3", len(sink.created))
	}
	now = now.Add(2 * seriesLife)
	r.flush(t.Context(), known)
	if len(known) != 0 {
		t.Errorf("%d series are remembered", len(known))
	}
}

func TestARecorderWritesUntilItsContextEnds(t *testing.T) {
	sink := &eventSink{}
	r := NewSeriesRecorder(sink, "scheduler", "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	r.Eventf(&corev1.ObjectReference{Kind: "Node", Name: "n1"}, nil, corev1.EventTypeNormal, "Ready", "Update", "100%%")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		sink.mu.Lock()
		n := len(sink.created)
		sink.mu.Unlock()
		if n == 1 {
			break
		}
	}
	cancel()
	<-done
	if len(sink.created) != 1 || sink.created[0].Namespace != "default" || sink.created[0].Message != "100%" || sink.created[0].ReportingInstance != "scheduler" ||
		sink.created[0].EventTime.IsZero() || sink.created[0].Action != "Update" {
		t.Errorf("got %+v", sink.created)
	}
	for range 2 * eventQueue { // without a reader, the recorder drops events but does not block
		r.Eventf(&corev1.ObjectReference{Kind: "Node", Name: "n1"}, nil, corev1.EventTypeNormal, "Ready", "Update", "x")
	}
}

func pod(namespace, name, node string, lbls map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: lbls, UID: types.UID(namespace + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

// A cut inside a character would make the note invalid UTF-8, or longer than the API allows.
func TestLongNotesAreCutBetweenCharacters(t *testing.T) {
	sink := &eventSink{}
	r := NewRecorder(sink, "kubelet", "n1")
	for cut := range 4 {
		r.Eventf(pod("a", "p", "", nil), nil, corev1.EventTypeWarning, "Failed", "", "%s", strings.Repeat("x", cut)+strings.Repeat("𝄞", maxNote))
		e := <-r.queue
		if len(e.note) > maxNote || len(e.note) < maxNote-6 || !utf8.ValidString(e.note) || !strings.HasSuffix(e.note, "𝄞...") {
			t.Errorf("%d bytes: %q", len(e.note), e.note[len(e.note)-8:])
		}
	}
}

// gate is a limit that lets a write pass for each value of its channel.
type gate chan struct{}

func (gate) TryAccept() bool { return false }
func (gate) Accept()         {}
func (gate) Stop()           {}
func (gate) QPS() float32    { return 0 }
func (g gate) Wait(ctx context.Context) error {
	select {
	case <-g:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestALimitHoldsEventsBack(t *testing.T) {
	sink, open := &eventSink{}, make(gate)
	r := NewRecorder(sink, "kubelet", "node")
	r.Limit = open
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	for _, name := range []string{"one", "two"} {
		r.Eventf(&corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name}, nil, corev1.EventTypeNormal, "Made", "", "%s", name)
	}
	open <- struct{}{}
	open <- struct{}{} // the second write waits, so the first one is done
	cancel()
	<-done
	if n := len(sink.created); n < 1 || n > 2 {
		t.Errorf("%d events", n)
	}
}

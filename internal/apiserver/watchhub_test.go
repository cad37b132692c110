package apiserver

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/auth"
)

// openedWatch returns a watch of ConfigMaps that is not served yet.
func openedWatch(t *testing.T, s *Server, opts metav1.ListOptions) *watcher {
	t.Helper()
	e, _ := s.endpoints.hub("", "configmaps")
	op := s.engine.internal(e, "default", "")
	opts.Watch = true
	req, err := op.endpoint.newListRequest(opts)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.watches.open(t.Context(), op, req)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNewHubHasItsFormBeforeItMakesFrames(t *testing.T) {
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	f := format{media: mediaJSON}
	for i := range 20 {
		w := openedWatch(t, s, metav1.ListOptions{ResourceVersion: "0"})
		w.initial = nil
		mustCreate(t, c, configMap(fmt.Sprint("made-", i)))
		<-w.cursor.Ready()
		task := taskpool.NewTask(func() time.Duration { return taskpool.Idle })
		m := &member{task: &task}
		enc := newEventEncoder(w.op.endpoint, f)
		if !w.join(m, &enc, true) {
			// The watch began at a revision that the cache had not reached: it keeps its cursor, so
			// there is nothing to test.
			w.cursor.Close()
			continue
		}
		frames, _, err := m.take(1 << 20)
		if size, _, chunked := strings.Cut(string(frames), "\r\n"); err != nil || !chunked || strings.Contains(size, "{") {
			t.Errorf("the first frame came as %.60q, %v: not chunked", frames, err)
		}
		m.leave()
	}
}

// deadlineResponse is a detached response that records its write deadlines.
type deadlineResponse struct {
	mu    sync.Mutex // guards the following fields
	times []time.Time
}

func (d *deadlineResponse) SetWriteDeadline(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.times = append(d.times, at)
}

func (*deadlineResponse) Task(turn func() time.Duration) taskpool.Task {
	return taskpool.NewTask(turn)
}
func (*deadlineResponse) Start(*taskpool.Task, func()) error { return nil }
func (*deadlineResponse) Chunked() bool                      { return true }
func (*deadlineResponse) Room() int                          { return math.MaxInt }
func (*deadlineResponse) Begin([]byte)                       {}
func (*deadlineResponse) Write(p []byte) (int, error)        { return len(p), nil }
func (*deadlineResponse) End(*[]byte) (bool, error)          { return true, nil }
func (*deadlineResponse) Finish(_ bool, done func())         { done() }

func TestDeadlineIsExtendedForEachPieceOfInitialEvents(t *testing.T) {
	s := newTestServer(t)
	for i := range 20 {
		obj := configMap(fmt.Sprint("large-", i))
		obj.Data["a"] = strings.Repeat("x", 60<<10) // two fill a turn
		mustCreate(t, s.Client(auth.Component("tester")), obj)
	}
	w := openedWatch(t, s, metav1.ListOptions{})
	f := format{media: mediaJSON}
	enc := newEventEncoder(w.op.endpoint, f)
	set, ended := 0, make(chan struct{})
	out := &deadlineResponse{}
	st := &watchStream{server: s.watches, out: out, w: w, f: f, enc: &enc, end: time.Now().Add(time.Hour), ended: func() { close(ended) }}
	st.timer = time.NewTimer(time.Hour)
	st.task = out.Task(st.turn)
	st.member.task = &st.task
	w.begun = func() {
		out.mu.Lock()
		set = len(out.times)
		out.mu.Unlock()
		st.hangUp()
	}
	st.wake()
	<-ended
	if set < 5 {
		t.Errorf("the deadline of writes was set %d times", set)
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	areLater(t, out.times[:set])
}

func areLater(t *testing.T, times []time.Time) {
	t.Helper()
	for i := 1; i < len(times); i++ {
		if times[i].Before(times[i-1]) {
			t.Errorf("deadline %d is before the one that it follows", i)
		}
	}
}

// deadlineWriter is a response that records its write deadlines until the watch has begun. Then it
// ends the watch, which sets the deadline for the final bytes.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	begun func()

	mu    sync.Mutex // guards the following fields: the end of the watch runs concurrently
	ended bool
	times []time.Time
}

func (d *deadlineWriter) SetWriteDeadline(at time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ended:
	case at.IsZero():
		d.ended = true
		d.begun()
	default:
		d.times = append(d.times, at)
	}
	return nil
}

func (*deadlineWriter) SetReadDeadline(time.Time) error { return nil }

// HTTP/2 and custom resources use another path to the client.
func TestDeadlineIsExtendedForEachPieceWithoutADetachedStream(t *testing.T) {
	s := newTestServer(t)
	for i := range 20 {
		obj := configMap(fmt.Sprint("large-", i))
		obj.Data["a"] = strings.Repeat("x", 60<<10) // two fill a piece
		mustCreate(t, s.Client(auth.Component("tester")), obj)
	}
	w := openedWatch(t, s, metav1.ListOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	answer := &deadlineWriter{ResponseRecorder: httptest.NewRecorder(), begun: cancel}
	s.watches.serve(ctx, &codeWriter{ResponseWriter: answer}, &http.Request{ProtoMajor: 2}, format{media: mediaJSON}, w)
	if n := len(answer.times); n < 10 {
		t.Errorf("the deadline of writes was set %d times", n)
	}
	if n := strings.Count(answer.Body.String(), `"ADDED"`); n < 20 {
		t.Errorf("%d objects were told of", n)
	}
	areLater(t, answer.times)
}

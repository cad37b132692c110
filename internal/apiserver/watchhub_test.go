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
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/watch"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
)

// openedWatch returns a watch of ConfigMaps that is not served yet.
func openedWatch(t *testing.T, s *Server, opts metav1.ListOptions) *watch.Watcher {
	t.Helper()
	e, _ := s.endpoints.Hub("", "configmaps")
	op := s.engine.InternalOperation(e, "default", "")
	opts.Watch = true
	req, err := op.Endpoint.NewListRequest(opts)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.watches.Open(t.Context(), op, req)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNewHubHasItsFormBeforeItMakesFrames(t *testing.T) {
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	f := wire.Format{Media: wire.MediaJSON}
	for i := range 20 {
		w := openedWatch(t, s, metav1.ListOptions{ResourceVersion: "0"})
		w.Initial = nil
		mustCreate(t, c, configMap(fmt.Sprint("made-", i)))
		<-w.Cursor.Ready()
		task := taskpool.NewTask(func() time.Duration { return taskpool.Idle })
		m := &watch.Member{Task: &task}
		enc := watch.NewEventEncoder(w.Op.Endpoint, f)
		if !w.Join(m, &enc, true) {
			// The watch began at a revision that the cache had not reached: it keeps its cursor, so
			// there is nothing to test.
			w.Cursor.Close()
			continue
		}
		frames, _, err := m.Take(1 << 20)
		if size, _, chunked := strings.Cut(string(frames), "\r\n"); err != nil || !chunked || strings.Contains(size, "{") {
			t.Errorf("the first frame came as %.60q, %v: not chunked", frames, err)
		}
		m.Leave()
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

func (*deadlineResponse) Chunked() bool { return true }

func (*deadlineResponse) Room() int { return math.MaxInt }

func (*deadlineResponse) Begin([]byte) {}

func (*deadlineResponse) Write(p []byte) (int, error) { return len(p), nil }

func (*deadlineResponse) End(*[]byte) (bool, error) { return true, nil }

func (*deadlineResponse) Finish(_ bool, done func()) { done() }

func TestDeadlineIsExtendedForEachPieceOfInitialEvents(t *testing.T) {
	s := newTestServer(t)
	for i := range 20 {
		obj := configMap(fmt.Sprint("large-", i))
		obj.Data["a"] = strings.Repeat("x", 60<<10) // two fill a turn
		mustCreate(t, s.Client(auth.Component("tester")), obj)
	}
	w := openedWatch(t, s, metav1.ListOptions{})
	f := wire.Format{Media: wire.MediaJSON}
	enc := watch.NewEventEncoder(w.Op.Endpoint, f)
	set, ended := 0, make(chan struct{})
	out := &deadlineResponse{}
	st := &watch.WatchStream{Server: s.watches, Out: out, Watcher: w, Format: f, Enc: &enc, End: time.Now().Add(time.Hour), OnEnd: func() { close(ended) }}
	st.Timer = time.NewTimer(time.Hour)
	st.Task = out.Task(st.Turn)
	st.Member.Task = &st.Task
	w.OnInitialSent = func() {
		out.mu.Lock()
		set = len(out.times)
		out.mu.Unlock()
		st.Stop()
	}
	st.Wake()
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
	s.watches.Serve(ctx, &telemetry.ResponseRecorder{ResponseWriter: answer}, &http.Request{ProtoMajor: 2}, wire.Format{Media: wire.MediaJSON}, w)
	if n := len(answer.times); n < 10 {
		t.Errorf("the deadline of writes was set %d times", n)
	}
	if n := strings.Count(answer.Body.String(), `"ADDED"`); n < 20 {
		t.Errorf("%d objects were told of", n)
	}
	areLater(t, answer.times)
}

package watch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// openedWatch returns a watch of ConfigMaps that is not served yet.
func openedWatch(t *testing.T, s *testServer, opts metav1.ListOptions) *Watcher {
	t.Helper()
	e := s.configMaps(t)
	op := s.engine.InternalOperation(e, "default", "")
	opts.Watch = true
	req, err := op.Endpoint.NewListRequest(opts)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), op, req)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNewHubHasItsFormBeforeItMakesFrames(t *testing.T) {
	s := newTestServer(t)
	f := wire.Format{Media: wire.MediaJSON}
	for i := range 20 {
		w := openedWatch(t, s, metav1.ListOptions{ResourceVersion: "0"})
		w.Initial = nil
		s.create(t, configMap(fmt.Sprint("made-", i)))
		<-w.Cursor.Ready()
		task := taskpool.NewTask(func() time.Duration { return taskpool.Idle })
		m := &member{task: &task}
		enc := newEventEncoder(w.op.Endpoint, f)
		if !w.join(m, &enc, true) {
			// The watch began at a revision that the cache had not reached: it keeps its cursor, so
			// there is nothing to test.
			w.Cursor.Close()
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
		s.create(t, obj)
	}
	w := openedWatch(t, s, metav1.ListOptions{})
	f := wire.Format{Media: wire.MediaJSON}
	enc := newEventEncoder(w.op.Endpoint, f)
	set, ended := 0, make(chan struct{})
	out := &deadlineResponse{}
	st := &stream{server: s.Server, out: out, watcher: w, format: f, enc: &enc, end: time.Now().Add(time.Hour), onEnd: func() { close(ended) }}
	st.timer = time.NewTimer(time.Hour)
	st.task = out.Task(st.turn)
	st.member.task = &st.task
	w.OnInitialSent = func() {
		out.mu.Lock()
		set = len(out.times)
		out.mu.Unlock()
		st.stop()
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
		s.create(t, obj)
	}
	w := openedWatch(t, s, metav1.ListOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	answer := &deadlineWriter{ResponseRecorder: httptest.NewRecorder(), begun: cancel}
	s.Serve(ctx, &telemetry.ResponseRecorder{ResponseWriter: answer}, &http.Request{ProtoMajor: 2}, wire.Format{Media: wire.MediaJSON}, w)
	if n := len(answer.times); n < 10 {
		t.Errorf("the deadline of writes was set %d times", n)
	}
	if n := strings.Count(answer.Body.String(), `"ADDED"`); n < 20 {
		t.Errorf("%d objects were told of", n)
	}
	areLater(t, answer.times)
}

func TestHubCountsItsBytes(t *testing.T) {
	for _, chunked := range []bool{true, false} {
		h := &hub{key: hubKey{chunked: chunked}}
		for revision := range int64(100_000) { // several times what a hub keeps
			h.add(make([]byte, 100), revision)
			h.dropOldest()
		}
		kept := 0
		for _, b := range h.blocks {
			kept += len(b.Data)
		}
		if h.bytes != kept || kept < maxHubBytes-maxBlockBytes {
			t.Errorf("chunked %t: counts %d bytes, keeps %d of at most %d", chunked, h.bytes, kept, maxHubBytes)
		}
	}
}

func TestWatchDoesNotWaitForAnotherHub(t *testing.T) {
	s := newTestServer(t)
	key := hubKey{form: "busy"}
	// It stays locked, as while it makes frames; it occupies no worker.
	busy, _ := s.hubs.enter(key, 0, func() *hub { return &hub{cursor: new(cache.Cursor)} })
	entered := make(chan struct{})
	defer func() {
		busy.mu.Unlock()
		<-entered
	}()
	go func() {
		defer close(entered)
		h, _ := s.hubs.enter(key, 0, nil)
		h.mu.Unlock()
	}()
	eventually(t, func() error { // a watch waits for the busy hub
		var all strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
			return err
		}
		for g := range strings.SplitSeq(all.String(), "\n\n") {
			if state, _, _ := strings.Cut(g, "\n"); strings.Contains(state, "[sync.Mutex.Lock") && strings.Contains(g, t.Name()+".func") {
				return nil
			}
		}
		return errors.New("no watch waits for the busy hub")
	})
	eventually(t, func() error {
		if !s.hubs.mu.TryLock() {
			return errors.New("a watch that waits for the busy hub locks all the others")
		}
		s.hubs.mu.Unlock()
		return nil
	})
	// A watch with another key joins its hub.
	answer := httptest.NewRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	w := openedWatch(t, s, metav1.ListOptions{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve(ctx, &telemetry.ResponseRecorder{ResponseWriter: answer}, &http.Request{ProtoMajor: 2}, wire.Format{Media: wire.MediaJSON}, w)
	}()
	eventually(t, func() error {
		if _, hubs := s.Count(); hubs != 2 {
			return fmt.Errorf("%d hubs are open, want the busy one and another", hubs)
		}
		return nil
	})
	cancel()
	<-served
}

package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// These tests reproduce faults of other clients' informers. go test -run Regression ./internal/...
// runs all tests of this kind.

// restarted is a server that stops and starts again with the same store and address, for clients
// over HTTP. After a restart, its watches cannot be resumed.
type restarted struct {
	*serverFixture
	t       *testing.T
	log     *slog.Logger
	server  *apiserver.Server
	handler atomic.Pointer[http.Handler] // nil while the server is down
}

func newRestarted(t *testing.T) *restarted {
	t.Helper()
	r := &restarted{t: t, log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))}
	s, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true, Log: r.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	r.serverFixture = &serverFixture{store: s}
	r.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := r.handler.Load()
		if h == nil {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		(*h).ServeHTTP(w, req)
	}))
	r.up()
	t.Cleanup(func() {
		r.down()
		r.http.Close()
	})
	if r.client, err = client.Remote(&rest.Config{Host: r.http.URL, QPS: -1}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *restarted) up() {
	r.t.Helper()
	server, err := apiserver.New(apiserver.Config{Store: r.store, Logger: r.log, Security: apiserver.Security{Authorizer: allowAll{}}})
	if err != nil {
		r.t.Fatal(err)
	}
	h := server.Handler()
	r.server = server
	r.handler.Store(&h)
}

func (r *restarted) down() {
	r.handler.Store(nil)
	r.http.CloseClientConnections()
	r.server.Close()
}

// observed records a subscriber's events in order.
type observed struct {
	mu     sync.Mutex // guards the fields below
	events []string
	there  map[string]string // the state after all events: name → version
	wrong  []string
}

func (h *observed) add(e client.Event) {
	p := e.Object.(*corev1.Pod)
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.there[p.Name]
	switch {
	case e.Type == client.Deleted && !known:
		h.wrong = append(h.wrong, p.Name+" is deleted but was unknown")
	case e.Type != client.Deleted && known != (e.Old != nil):
		h.wrong = append(h.wrong, fmt.Sprintf("%s has an old state: %v; it was known: %v", p.Name, e.Old != nil, known))
	case e.Type != client.Deleted && known && before == p.ResourceVersion:
		h.wrong = append(h.wrong, p.Name+" of "+before+" is reported twice")
	}
	what := "put"
	if e.Type == client.Deleted {
		what = "deleted"
		delete(h.there, p.Name)
	} else {
		h.there[p.Name] = p.ResourceVersion
	}
	h.events = append(h.events, fmt.Sprintf("%s %s of %s", what, p.Name, p.UID))
}

// until waits until the events add up to these names, in the versions that the view shows.
func (h *observed) until(t *testing.T, v client.View, names ...string) {
	t.Helper()
	var got, stale []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		got, stale = got[:0], stale[:0]
		for name, version := range h.there {
			got = append(got, name)
			if obj, ok := v.Get("a", name); ok && obj.(*corev1.Pod).ResourceVersion != version {
				stale = append(stale, name+" of "+version)
			}
		}
		h.mu.Unlock()
		slices.Sort(got)
		if slices.Equal(got, names) && len(stale) == 0 {
			return
		}
	}
	t.Fatalf("the events add up to %v, want %v; the view shows other versions than %v", got, names, stale)
}

func (r *restarted) subscribe(t *testing.T) (*observed, client.View) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &observed{there: map[string]string{}}
	v := r.view(t, ctx, client.Scope{})
	synced, done := v.Subscribe(ctx, h.add)
	t.Cleanup(func() { cancel(); <-done })
	<-synced
	return h, v
}

func uidPod(name, uid string) *corev1.Pod {
	p := pod("a", name, "", nil)
	p.UID = types.UID(uid)
	return p
}

// k/k#115658: deletions during an outage are reported after the next list, also for names that new
// objects have taken.
func TestRegressionARelistReportsDeletions(t *testing.T) {
	r := newRestarted(t)
	for _, name := range []string{"changed", "gone", "kept", "replaced"} {
		r.put(t, uidPod(name, "first-"+name))
	}
	h, v := r.subscribe(t)
	h.until(t, v, "changed", "gone", "kept", "replaced")
	h.mu.Lock()
	h.events = nil
	h.mu.Unlock()
	r.down()
	r.remove(t, "a", "gone")
	r.remove(t, "a", "replaced")
	r.put(t, uidPod("replaced", "second-replaced"))
	r.put(t, uidPod("changed", "first-changed"))
	if err := r.store.Compact(t.Context(), r.put(t, uidPod("new", "first-new"))); err != nil {
		t.Fatal(err)
	}
	r.up()
	h.until(t, v, "changed", "kept", "new", "replaced")
	h.mu.Lock()
	slices.Sort(h.events)
	want := "deleted gone of first-gone, deleted replaced of first-replaced, put changed of first-changed, put new of first-new, put replaced of second-replaced"
	if got := strings.Join(h.events, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, wrong := range h.wrong {
		t.Error(wrong)
	}
	h.mu.Unlock()
	if got := named(v.List("a", nil)); got != "a/changed a/kept a/new a/replaced" {
		t.Errorf("the view shows %s", got)
	}
}

// k/k#49992 and similar: a client that must list again, because the server has compacted its
// revision, gets no event twice and misses no change that still holds.
func TestRegressionRelistsAfterCompactionsRepeatAndMissNothing(t *testing.T) {
	const rounds, objects = 6, 5
	r := newRestarted(t)
	h, v := r.subscribe(t)
	var want []string
	for i := range rounds {
		want = want[:0]
		for j := range objects {
			name := fmt.Sprint("p", j)
			switch (i + j) % 4 {
			case 0:
				if _, ok := v.Get("a", name); ok {
					r.remove(t, "a", name)
				}
				continue
			case 1:
				r.put(t, uidPod(name, fmt.Sprint(name, "-", i)))
			default:
				r.put(t, uidPod(name, fmt.Sprint(name, "-", i/4)))
			}
			want = append(want, name)
		}
		if i%2 == 0 {
			r.down()
		}
		last := r.put(t, uidPod("z", "z"))
		if err := r.store.Compact(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			r.up()
		} else {
			r.lose(t) // the same server: the watch continues
		}
		reach(t, v, last)
		h.until(t, v, append(want, "z")...)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, wrong := range h.wrong {
		t.Error(wrong)
	}
	for name, version := range h.there {
		obj, ok := v.Get("a", name)
		if !ok || obj.(*corev1.Pod).ResourceVersion != version {
			t.Errorf("the last event of %s was at %s, the view shows %v", name, version, obj)
		}
	}
}

// unread is a store in which one object is not readable for a while.
type unread struct {
	store.Store
	key atomic.Pointer[string] // nil means that all objects are readable
}

func (u *unread) Range(ctx context.Context, prefix string, o store.RangeOptions) (store.RangeResult, error) {
	r, err := u.Store.Range(ctx, prefix, o)
	if key := u.key.Load(); key != nil {
		r.KVs = slices.DeleteFunc(r.KVs, func(kv store.KeyValue) bool { return kv.Key == *key })
	}
	return r, err
}

// A kind that is listed again may show more objects at the same revision. A subscriber that had the
// old list and follows from its revision must get these objects too.
func TestRegressionARelistAtTheSameRevisionReportsMoreObjects(t *testing.T) {
	var u *unread
	w := localFixtureOf(t, func(s store.Store) store.Store {
		u = &unread{Store: s}
		return u
	})
	hidden := pods + "/a/hidden"
	u.key.Store(&hidden)
	w.put(t, pod("a", "hidden", "", nil))
	rev := w.put(t, pod("a", "shown", "", nil))
	v := w.view(t, t.Context(), client.Scope{})
	reach(t, v, rev)
	ctx, cancel := context.WithCancel(t.Context())
	names := make(chan string, 10)
	first := true
	synced, done := v.Subscribe(ctx, func(e client.Event) {
		if first { // it has its snapshot, but does not follow yet
			first = false
			u.key.Store(nil)
			if err := w.cache.Relist(ctx, pods); err != nil {
				t.Error(err)
			}
		}
		names <- e.Object.(*corev1.Pod).Name
	})
	defer func() { cancel(); <-done }()
	<-synced
	for _, want := range []string{"shown", "hidden"} {
		select {
		case got := <-names:
			expect(t, "the name", got, want)
		case <-short(t).Done():
			t.Fatalf("no event about %s came in a minute", want)
		}
	}
}

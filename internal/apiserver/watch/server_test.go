package watch

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// testServer serves watches of a store, without a chain of requests before them.
type testServer struct {
	*Server
	engine *verb.Engine
}

// open lets every user do everything.
type open struct{}

func (open) Authorizer() auth.Authorizer { return auth.Authorizers{} }

func (open) Admission() admission.Chain { return admission.Chain{} }

func (open) Reviews() verb.Reviews { return verb.Reviews{} }

func newTestServer(t testing.TB) *testServer {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := etcd.Open(t.Context(), etcd.Options{DataDir: t.TempDir(), UnsafeNoSync: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	m, pool := telemetry.NewMetrics(), taskpool.NewPool()
	shared := &registry.Shared{Log: log, Clock: time.Now, Store: m.Store, Writes: m.Writes, EventTTL: time.Hour}
	if err := shared.Open(store, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shared.Home.Cache.Close)
	serving, err := transport.New(transport.Plain, transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Lost: new(atomic.Bool),
		Log:  log, Timeout: time.Minute, MinDuration: 30 * time.Minute, Transport: serving, Pace: taskpool.NewPace(), Pool: pool,
		WaitGroup: new(sync.WaitGroup), Leaving: new(atomic.Bool),
	}
	return &testServer{s, &verb.Engine{Kinds: registry.NewKinds(shared, nil), Access: open{}}}
}

// create stores a ConfigMap.
func (s *testServer) create(t testing.TB, obj *corev1.ConfigMap) {
	t.Helper()
	e := s.configMaps(t)
	if _, err := s.engine.InternalOperation(e, obj.Namespace, obj.Name).CreateAny(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func (s *testServer) configMaps(t testing.TB) *registry.Endpoint {
	t.Helper()
	e, ok := s.engine.Kinds.Find(corev1.SchemeGroupVersion.WithResource("configmaps"))
	if !ok {
		t.Fatal("the kind ConfigMap is not served")
	}
	return e
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"a": "1"}}
}

// eventually waits until fn returns nil.
func eventually(t *testing.T, fn func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestNoStreamIsAddedAfterTheStateIsLost covers a watch that began before, and whose connection is
// taken over afterwards: nothing else would end it.
func TestNoStreamIsAddedAfterTheStateIsLost(t *testing.T) {
	var ss streams
	var all sync.WaitGroup
	var lost atomic.Bool
	first, late := &stream{}, &stream{}
	if !ss.add(first, &lost, &all) {
		t.Error("a stream was refused before")
	}
	lost.Store(true)
	if ss.add(late, &lost, &all) {
		t.Error("a stream was added afterwards")
	}
	if n := len(ss.Ends()); n != 1 {
		t.Errorf("%d streams, wanted 1", n)
	}
}

package client_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// serverFixture is a real API server. Pods are written directly to its store, without validation.
type serverFixture struct {
	store  store.Store
	http   *httptest.Server
	client client.Interface
}

type allowAll struct{}

func (allowAll) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.Allow, "", nil
}

// newServerFixture starts a server and a client, in process or over HTTP.
func newServerFixture(t *testing.T, remote bool) *serverFixture {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	server, err := apiserver.New(apiserver.Config{Store: s, Logger: log, Security: apiserver.Security{Authorizer: allowAll{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	w := &serverFixture{store: s, client: server.Client(auth.Component("tester"))}
	if !remote {
		return w
	}
	w.http = httptest.NewServer(server.Handler())
	t.Cleanup(func() { w.http.CloseClientConnections(); w.http.Close() })
	if w.client, err = client.Remote(&rest.Config{Host: w.http.URL}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *serverFixture) view(t *testing.T, ctx context.Context, scope client.Scope) client.View {
	t.Helper()
	v, err := w.client.View(ctx, api.ResourceOf(&corev1.Pod{}), scope)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *serverFixture) put(t *testing.T, p *corev1.Pod) int64 {
	t.Helper()
	b, err := api.EncodeStored(p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.store.Commit(t.Context(), nil, store.Op{Key: pods + "/" + p.Namespace + "/" + p.Name, Value: b})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

func (w *serverFixture) remove(t *testing.T, namespace, name string) int64 {
	t.Helper()
	return (&localFixture{store: w.store}).remove(t, namespace, name)
}

func (w *serverFixture) lose(*testing.T) {
	if w.http != nil {
		w.http.CloseClientConnections()
	}
}

func TestViewsOfTheAPIServerInProcess(t *testing.T) {
	testViews(t, func(t *testing.T) fixture { return newServerFixture(t, false) })
}

func TestViewsOverHTTP(t *testing.T) {
	testViews(t, func(t *testing.T) fixture { return newServerFixture(t, true) })
}

func TestTheClientInProcessConforms(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Interface { return newServerFixture(t, false).client })
}

func TestTheClientOverHTTPConforms(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Interface { return newServerFixture(t, true).client })
}

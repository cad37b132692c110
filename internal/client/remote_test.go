package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// serverWorld is a real API server. Pods are written into its store, past validation.
type serverWorld struct {
	store  store.Store
	http   *httptest.Server
	client client.Interface
}

type allowAll struct{}

func (allowAll) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.Allow, "", nil
}

// newServerWorld starts a server; remote says whether it is spoken to over HTTP.
func newServerWorld(t *testing.T, remote bool) *serverWorld {
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
	w := &serverWorld{store: s, client: server.Client(auth.Component("tester"))}
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

func (w *serverWorld) view(t *testing.T, ctx context.Context, scope client.Scope) client.View {
	t.Helper()
	v, err := w.client.View(ctx, api.ResourceOf(&corev1.Pod{}), scope)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *serverWorld) put(t *testing.T, p *corev1.Pod) int64 {
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

func (w *serverWorld) remove(t *testing.T, namespace, name string) int64 {
	t.Helper()
	return (&localWorld{store: w.store}).remove(t, namespace, name)
}

func (w *serverWorld) lose(*testing.T) {
	if w.http != nil {
		w.http.CloseClientConnections()
	}
}

func TestViewsOfTheAPIServerInProcess(t *testing.T) {
	testViews(t, func(t *testing.T) world { return newServerWorld(t, false) })
}

func TestViewsOverHTTP(t *testing.T) {
	testViews(t, func(t *testing.T) world { return newServerWorld(t, true) })
}

func TestViewsShowOnesOwnWrites(t *testing.T) {
	for name, remote := range map[string]bool{"in process": false, "over HTTP": true} {
		t.Run(name, func(t *testing.T) { ownWrites(t, newServerWorld(t, remote).client) })
	}
}

func configMap(name string, lbls map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: lbls}}
}

func ownWrites(t *testing.T, c client.Interface) {
	ctx := short(t)
	all := open(t, c, client.Scope{})
	red := open(t, c, client.Scope{LabelSelector: "c=red"})
	other := open(t, c, client.Scope{Namespace: "other"})
	one := open(t, c, client.Scope{FieldSelector: "metadata.name=one"})
	check := func(what string, want ...string) {
		t.Helper()
		for i, v := range []client.ViewOf[*corev1.ConfigMap]{all, red, other, one} {
			var got []string
			for _, o := range v.List("", nil) {
				got = append(got, o.Name+o.Data["v"])
			}
			if strings.Join(got, " ") != want[i] {
				t.Errorf("%s: view %d shows %q, want %q", what, i, strings.Join(got, " "), want[i])
			}
		}
	}
	cm, err := client.Create(ctx, c, configMap("one", map[string]string{"c": "red"}))
	if err != nil {
		t.Fatal(err)
	}
	check("created", "one", "one", "", "one")
	if _, err := client.Create(ctx, c, configMap("one", nil)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v", err)
	}
	cm.Data = map[string]string{"v": "1"}
	if cm, err = client.Update(ctx, c, cm); err != nil {
		t.Fatal(err)
	}
	check("updated", "one1", "one1", "", "one1")
	if _, err := client.Update(ctx, c, cm); err != nil {
		t.Errorf("an update without effect: %v", err)
	}
	if _, err := client.Create(ctx, c, configMap("two", nil)); err != nil {
		t.Fatal(err)
	}
	check("another created", "one1 two", "one1", "", "one1")
	_, err = client.Patch[*corev1.ConfigMap](ctx, c, "default", "one", types.MergePatchType, []byte(`{"data":{"v":"2"},"metadata":{"labels":{"c":"blue"},"finalizers":["example.com/hold"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	check("patched out of a view", "one2 two", "", "", "one2")
	if err := client.Delete[*corev1.ConfigMap](ctx, c, "default", "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	check("deleted", "one2", "", "", "one2")
	if err := client.Delete[*corev1.ConfigMap](ctx, c, "default", "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if o, ok := all.Get("default", "one"); !ok || o.DeletionTimestamp == nil {
		t.Errorf("an object whose deletion waits for a finalizer: %v", o)
	}
	_, err = client.Patch[*corev1.ConfigMap](ctx, c, "default", "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	check("finalized", "", "", "", "")
	for i := range 20 {
		if _, err := client.Create(ctx, c, configMap(fmt.Sprint("x", i), nil)); err != nil {
			t.Fatal(err)
		}
		if _, ok := all.Get("default", fmt.Sprint("x", i)); !ok {
			t.Fatalf("x%d was created and is not shown", i)
		}
	}
	if err := c.DeleteCollection(ctx, api.ResourceOf(cm), "default", metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	check("all deleted", "", "", "", "")
}

func open(t *testing.T, c client.Interface, scope client.Scope) client.ViewOf[*corev1.ConfigMap] {
	t.Helper()
	v, err := client.Open[*corev1.ConfigMap](t.Context(), c, scope)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDiscoveryListsGroupVersions(t *testing.T) {
	for name, remote := range map[string]bool{"in process": false, "over HTTP": true} {
		t.Run(name, func(t *testing.T) {
			lists, err := newServerWorld(t, remote).client.Discovery(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, l := range lists {
				found[l.GroupVersion] = len(l.APIResources) > 0
			}
			if !found["v1"] || !found["apps/v1"] {
				t.Errorf("found %v", found)
			}
		})
	}
}

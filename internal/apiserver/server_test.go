package apiserver

import (
	"context"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

type allowAll struct{}

func (allowAll) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.Allow, "", nil
}

// newTestServer is a server with its own store, in which every user may do everything.
func newTestServer(t testing.TB, change ...func(*Config)) *Server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	st, err := etcd.Open(t.Context(), etcd.Options{DataDir: t.TempDir(), UnsafeNoSync: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	cfg := Config{Store: st, Logger: log}
	cfg.Security.Authorizer = allowAll{}
	for _, fn := range change {
		fn(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"a": "1"}}
}

func TestWritesInProcess(t *testing.T) {
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	ctx := t.Context()
	created, err := client.Create(ctx, c, configMap("one"))
	if err != nil {
		t.Fatal(err)
	}
	if created.UID == "" || created.ResourceVersion == "" || created.CreationTimestamp.IsZero() || len(created.ManagedFields) != 1 {
		t.Fatalf("the server did not fill in metadata: %+v", created.ObjectMeta)
	}
	if _, err := client.Create(ctx, c, configMap("one")); !apierrors.IsAlreadyExists(err) || err.Error() != `configmaps "one" already exists` {
		t.Fatalf("create twice: %v", err)
	}
	changed := created.DeepCopy()
	changed.Data["b"] = "2"
	changed, err = client.Update(ctx, c, changed)
	if err != nil {
		t.Fatal(err)
	}
	stale := created.DeepCopy()
	stale.Data["c"] = "3"
	_, err = client.Update(ctx, c, stale)
	want := `Operation cannot be fulfilled on configmaps "one": the object has been modified; please apply your changes to the latest version and try again`
	if !apierrors.IsConflict(err) || err.Error() != want {
		t.Fatalf("stale update: %v", err)
	}
	same, err := client.Update(ctx, c, changed.DeepCopy())
	if err != nil || same.ResourceVersion != changed.ResourceVersion {
		t.Fatalf("an update without a change made a revision: %v, %s → %s", err, changed.ResourceVersion, same.ResourceVersion)
	}
	patched, err := client.Patch[*corev1.ConfigMap](ctx, c, "default", "one", types.MergePatchType, []byte(`{"data":{"a":null,"d":"4"}}`))
	if err != nil || len(patched.Data) != 2 || patched.Data["d"] != "4" {
		t.Fatalf("merge patch: %v %v", err, patched)
	}
	patched, err = client.Patch[*corev1.ConfigMap](ctx, c, "default", "one", types.JSONPatchType, []byte(`[{"op":"add","path":"/data/e","value":"5"}]`))
	if err != nil || patched.Data["e"] != "5" {
		t.Fatalf("JSON patch: %v %v", err, patched)
	}
	applied, err := client.Patch[*corev1.ConfigMap](ctx, c, "default", "two", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two"},"data":{"x":"y"}}`))
	if err != nil || applied.Data["x"] != "y" || applied.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Fatalf("apply: %v %v", err, applied)
	}
	if err := client.Delete[*corev1.ConfigMap](ctx, c, "default", "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete[*corev1.ConfigMap](ctx, c, "default", "one", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("delete twice: %v", err)
	}
}

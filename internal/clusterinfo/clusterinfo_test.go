package clusterinfo

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

// unconfirmed makes a write and answers that it may not have been made.
type unconfirmed struct {
	*clienttest.Memory
	failures int
	err      error
}

func (u *unconfirmed) Create(ctx context.Context, r schema.GroupVersionResource, namespace string, obj runtime.Object, opts metav1.CreateOptions, sub ...string) (runtime.Object, error) {
	out, err := u.Memory.Create(ctx, r, namespace, obj, opts, sub...)
	if u.failures++; err == nil {
		err = u.err
	}
	return out, err
}

func TestPublishWaitsForALateStore(t *testing.T) {
	info := Info{ServiceCIDR: "10.43.0.0/16", PodCIDR: "10.42.0.0/16", ClusterDomain: "cluster.local", ClusterDNS: "10.43.0.10"}
	late := &unconfirmed{Memory: clienttest.NewMemory(), err: apierrors.NewTimeoutError("late", 0)}
	if err := Publish(t.Context(), late, info); err != nil {
		t.Fatal(err)
	}
	have, err := client.Get[*corev1.ConfigMap](t.Context(), late, metav1.NamespaceSystem, Name)
	if err != nil || read(have) != info || late.failures != 1 {
		t.Errorf("%v, %v after %d attempts", have, err, late.failures)
	}
	refused := &unconfirmed{Memory: clienttest.NewMemory(), err: apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, Name, nil)}
	if err := Publish(t.Context(), refused, info); !apierrors.IsInvalid(err) {
		t.Errorf("a refusal became %v", err)
	}
}

package cache_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// unread is a kind that no other component reads.
var unread = cache.Schema{
	Prefix: "/registry/configmaps",
	Decode: func(stored []byte, revision int64) (k8sruntime.Object, error) { return api.DecodeStored(stored) },
	Header: func(obj k8sruntime.Object) cache.Header {
		m := obj.(*corev1.ConfigMap)
		return cache.Header{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID), Labels: cache.PairsOf(m.Labels)}
	},
}

func storedConfigMap(t testing.TB, i int) store.Op {
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("settings-%06d", i), UID: "0b2cd1f6-9a7e-4b9c-8a37-1f3e7a2f5b11",
			Labels: map[string]string{"app": "web", "tier": "front"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{".":{},"f:key":{}},"f:metadata":{"f:labels":{".":{},"f:app":{},"f:tier":{}}}}`)}}},
		},
		Data: map[string]string{"key": strings.Repeat("x", 300)},
	}
	b, err := api.EncodeStored(m)
	if err != nil {
		t.Fatal(err)
	}
	return store.Op{Key: "/registry/configmaps/default/" + m.Name, Value: b}
}

// objectMemory returns the memory per object that no one reads, in bytes: its encoding, the
// engine's share (etcd's index of keys, and the newest part of the log), and the total with the
// cache, which includes the encoding.
func objectMemory(t testing.TB, n int) (encoded, engine, all float64) {
	s, err := etcd.Open(context.Background(), etcd.Options{DataDir: t.TempDir() + "/etcd", UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(s)
	t.Cleanup(func() { c.Close(); s.Close() })
	before, size := heap(), 0
	for i := range n {
		op := storedConfigMap(t, i)
		size += len(op.Value)
		if _, err := s.Commit(t.Context(), nil, op); err != nil {
			t.Fatal(err)
		}
	}
	// Data not yet in the file is in a buffer of the engine, and a listing gets a copy of it. How
	// much that is depends on the time.
	if err := s.Defragment(t.Context()); err != nil {
		t.Fatal(err)
	}
	filled := heap()
	k, err := c.Kind(unread)
	if err != nil {
		t.Fatal(err)
	}
	after := heap()
	if got := k.Snapshot().Len(); got != n {
		t.Fatalf("%d objects, want %d", got, n)
	}
	runtime.KeepAlive(k)
	per := func(from, to uint64) float64 { return float64(int64(to)-int64(from)) / float64(n) }
	return float64(size) / float64(n), per(before, filled), per(before, after)
}

// The budget of the cache alone is 1 1/8 of the encoding, since Go allocates in steps, plus 300
// bytes.
func TestAnUnreadObjectTakesLittleMoreThanItsEncoding(t *testing.T) {
	encoded, engine, all := objectMemory(t, 10000)
	t.Logf("encoded %.0f bytes; in memory %.0f, %.0f of them the engine's", encoded, all, engine)
	if limit := 1.125*encoded + 300; all-engine > limit {
		t.Errorf("an object of %.0f bytes takes %.0f in the cache, the budget is %.0f", encoded, all-engine, limit)
	}
}

// BenchmarkObjectMemory reports bytes of heap per object for 100,000 objects that no one reads.
func BenchmarkObjectMemory(b *testing.B) {
	encoded, engine, all := objectMemory(b, 100000)
	for b.Loop() {
	}
	b.ReportMetric(encoded, "encoded-B")
	b.ReportMetric(engine, "engine-B/object")
	b.ReportMetric(all-engine, "cache-B/object")
}

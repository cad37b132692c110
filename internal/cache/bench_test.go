package cache_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

const prefix = "/registry/pods"

// schema decodes pods as the API server does.
var schema = cache.Schema{
	Prefix: prefix,
	Decode: func(stored []byte, revision int64) (k8sruntime.Object, error) {
		obj, err := api.DecodeStored(stored)
		if err != nil {
			return nil, err
		}
		obj.(*corev1.Pod).ResourceVersion = fmt.Sprint(revision)
		return obj, nil
	},
	Header: func(obj k8sruntime.Object) cache.Header {
		p := obj.(*corev1.Pod)
		return cache.Header{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Labels: cache.PairsOf(p.Labels), Fields: cache.PairsOf(fields.Set{
			"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase),
		})}
	},
}

// typicalPod returns a pod as a Deployment creates it.
func typicalPod(i int) *corev1.Pod {
	res := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web-6d4cf56db6-%05d", i), UID: "0b2cd1f6-9a7e-4b9c-8a37-1f3e7a2f5b11",
			Labels:          map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6", "tier": "front"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-6d4cf56db6", UID: "8b2cd1f6-9a7e-4b9c-8a37-1f3e7a2f5b12"}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprint("node-", i%100), ServiceAccountName: "default",
			Containers: []corev1.Container{{
				Name: "web", Image: "registry.example.com/shop/web:1.2.3", Resources: corev1.ResourceRequirements{Requests: res, Limits: res},
				Env:            []corev1.EnvVar{{Name: "MODE", Value: "production"}, {Name: "LISTEN", Value: ":8080"}},
				Ports:          []corev1.ContainerPort{{ContainerPort: 8080, Protocol: "TCP"}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz"}}},
				VolumeMounts:   []corev1.VolumeMount{{Name: "kube-api-access-abcde", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			}},
		},
		Status: corev1.PodStatus{Phase: "Running", PodIP: "10.42.0.17", HostIP: "192.168.1.10",
			Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}, {Type: "PodScheduled", Status: "True"}, {Type: "Initialized", Status: "True"}}},
	}
}

func bench(b *testing.B, n int) (store.Store, *cache.Cache) {
	b.Helper()
	s, err := etcd.Open(context.Background(), etcd.Options{DataDir: b.TempDir() + "/etcd", UnsafeNoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	c := cache.New(s)
	b.Cleanup(func() { c.Close(); s.Close() })
	for i := range n {
		put(b, s, i)
	}
	return s, c
}

func put(b *testing.B, s store.Store, i int) int64 {
	p := typicalPod(i)
	stored, err := api.EncodeStored(p)
	if err != nil {
		b.Fatal(err)
	}
	r, err := s.Commit(context.Background(), nil, store.Op{Key: prefix + "/" + p.Namespace + "/" + p.Name, Value: stored})
	if err != nil {
		b.Fatal(err)
	}
	return r.Revision
}

func open(b *testing.B, c *cache.Cache) *cache.Kind {
	b.Helper()
	k, err := c.Kind(schema)
	if err != nil {
		b.Fatal(err)
	}
	return k
}

// BenchmarkConsistentGet measures a GET without HTTP: read the newest revision, wait for it, look
// up the object.
func BenchmarkConsistentGet(b *testing.B) {
	s, c := bench(b, 5000)
	k := open(b, c)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		rev, err := s.Revision(ctx)
		if err != nil || k.WaitFor(ctx, rev) != nil {
			b.Fatal(err)
		}
		if _, ok := k.Snapshot().Get(prefix + "/default/web-6d4cf56db6-02500"); !ok {
			b.Fatal("missing")
		}
	}
}

func BenchmarkAscend5000(b *testing.B) {
	_, c := bench(b, 5000)
	k := open(b, c)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		k.Snapshot().Ascend(prefix+"/", "", func(*cache.Entry) bool { n++; return true })
		if n != 5000 {
			b.Fatal(n)
		}
	}
}

// BenchmarkWriteUntilShown measures a write and the wait until the cache shows it, as in each write
// of the API server.
func BenchmarkWriteUntilShown(b *testing.B) {
	for _, inFlight := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d-in-flight", inFlight), func(b *testing.B) {
			s, c := bench(b, 1000)
			k := open(b, c)
			ctx := b.Context()
			var n atomic.Int64
			one := func() {
				if err := k.WaitFor(ctx, put(b, s, int(n.Add(1)%1000))); err != nil {
					b.Error(err)
				}
			}
			b.ReportAllocs()
			if inFlight == 1 {
				for b.Loop() {
					one()
				}
				return
			}
			b.SetParallelism(inFlight / runtime.GOMAXPROCS(0))
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					one()
				}
			})
		})
	}
}

// BenchmarkFanOut measures the delivery of writes to many watchers. An operation is one delivered
// event.
func BenchmarkFanOut(b *testing.B) {
	for _, watchers := range []int{200, 1000} {
		b.Run(fmt.Sprintf("%d-watchers", watchers), func(b *testing.B) {
			s, c := bench(b, 1000)
			k := open(b, c)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var delivered atomic.Int64
			done := make(chan struct{})
			var wg sync.WaitGroup
			start := k.Revision()
			for range watchers {
				cur, err := k.Watch(start, cache.Interest{})
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					defer cur.Close()
					for {
						changes, _, err := cur.Next(ctx)
						if err != nil {
							return
						}
						for i := range changes {
							// All watchers share the bytes.
							_, _ = changes[i].Entry.Encoded("frame", func(k8sruntime.Object) ([]byte, error) { return changes[i].Entry.Stored(), nil })
						}
						if delivered.Add(int64(len(changes))) == int64(max(1, b.N/watchers))*int64(watchers) {
							close(done)
						}
					}
				})
			}
			b.ResetTimer()
			for i := range max(1, b.N/watchers) {
				put(b, s, i%1000)
			}
			<-done
			b.StopTimer()
			cancel()
			wg.Wait()
		})
	}
}

// BenchmarkNodeWatchers measures a write while each of 1000 nodes watches its own pods: one of them
// wakes.
func BenchmarkNodeWatchers(b *testing.B) {
	s, c := bench(b, 1000)
	k := open(b, c)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 1000 {
		cur, err := k.Watch(k.Revision(), cache.Interest{Fields: fields.OneTermEqualSelector("spec.nodeName", fmt.Sprint("node-", i))})
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer cur.Close()
			for {
				if _, _, err := cur.Next(ctx); err != nil {
					return
				}
			}
		})
	}
	i := 0
	for b.Loop() {
		i++
		if err := k.WaitFor(ctx, put(b, s, i%1000)); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
}

// BenchmarkMemory reports bytes of heap per object and per watcher.
func BenchmarkMemory(b *testing.B) {
	const n, watchers = 5000, 1000
	s, c := bench(b, n)
	_ = s
	before := heap()
	k := open(b, c)
	cold := heap()
	k.Snapshot().Ascend("", "", func(e *cache.Entry) bool { _, _ = e.Object(); return true })
	decoded := heap()
	cursors := make([]*cache.Cursor, watchers)
	for i := range cursors {
		cursors[i], _ = k.Watch(k.Revision(), cache.Interest{Namespace: "default"})
	}
	watched := heap()
	stored, _ := api.EncodeStored(typicalPod(1))
	for b.Loop() {
	}
	b.ReportMetric(float64(len(stored)), "stored-B")
	b.ReportMetric(float64(cold-before)/n, "B/object")
	b.ReportMetric(float64(decoded-before)/n, "B/object-decoded")
	b.ReportMetric(float64(watched-decoded)/watchers, "B/watcher")
	runtime.KeepAlive(cursors)
	runtime.KeepAlive(k)
}

// BenchmarkChurn reports the heap after 5,000 pods were created, changed five times and deleted
// while a watcher encoded them as JSON.
func BenchmarkChurn(b *testing.B) {
	const n = 5000
	s, c := bench(b, 0)
	k := open(b, c)
	cur, err := k.Watch(k.Revision(), cache.Interest{})
	if err != nil {
		b.Fatal(err)
	}
	defer cur.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			changes, _, err := cur.Next(ctx)
			if err != nil {
				return
			}
			for i := range changes {
				_, _ = changes[i].Entry.Encoded("json", func(o k8sruntime.Object) ([]byte, error) { return json.Marshal(o) })
			}
		}
	})
	before := heap()
	for b.Loop() {
		for i := range n {
			for range 6 {
				put(b, s, i)
			}
			_, _ = s.Commit(ctx, nil, store.Op{Key: fmt.Sprintf("%s/default/web-6d4cf56db6-%05d", prefix, i), Delete: true})
		}
	}
	after := heap()
	b.ReportMetric(float64(int64(after)-int64(before))/(1<<20), "MB-more-heap")
	cancel()
	wg.Wait()
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

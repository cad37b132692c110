package etcd

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// benchValue has the size of a small pod in protobuf.
var benchValue = make([]byte, 1500)

func benchEngine(b *testing.B, noSync bool) *Engine {
	b.Helper()
	e, err := Open(b.Context(), Options{DataDir: b.TempDir() + "/etcd", UnsafeNoSync: noSync})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	return e
}

func BenchmarkCommit(b *testing.B) {
	for name, noSync := range map[string]bool{"synced": false, "unsafe-no-sync": true} {
		for _, inFlight := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d-in-flight", name, inFlight), func(b *testing.B) {
				e := benchEngine(b, noSync)
				var n atomic.Int64
				b.SetParallelism(max(1, inFlight/2)) // times GOMAXPROCS
				if inFlight == 1 {
					for b.Loop() {
						put(b, e, n.Add(1))
					}
					return
				}
				b.ResetTimer()
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						put(b, e, n.Add(1))
					}
				})
			})
		}
	}
}

func put(b *testing.B, e *Engine, n int64) {
	key := fmt.Sprintf("/registry/pods/default/pod-%d", n)
	r, err := e.Commit(context.Background(), []store.Condition{{Key: key}}, store.Op{Key: key, Value: benchValue})
	if err != nil || !r.Succeeded {
		b.Error(r, err)
	}
}

func fill(b *testing.B, e *Engine, n int) {
	b.Helper()
	for i := range n {
		put(b, e, int64(i))
	}
}

func BenchmarkGet(b *testing.B) {
	e := benchEngine(b, true)
	fill(b, e, 1000)
	for b.Loop() {
		if kv, _, err := e.Get(b.Context(), "/registry/pods/default/pod-500", 0); err != nil || kv == nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRevision(b *testing.B) {
	e := benchEngine(b, true)
	for b.Loop() {
		if _, err := e.Revision(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRangeOf1000(b *testing.B) {
	e := benchEngine(b, true)
	fill(b, e, 1000)
	for b.Loop() {
		if r, err := e.Range(b.Context(), "/registry/pods/", store.RangeOptions{}); err != nil || len(r.KVs) != 1000 {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriteToWatch measures the time from a write to its event.
func BenchmarkWriteToWatch(b *testing.B) {
	e := benchEngine(b, true)
	w, err := e.Watch(b.Context(), "/registry/", 0)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	n := int64(0)
	for b.Loop() {
		n++
		put(b, e, n)
		if _, err := w.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	e := benchEngine(b, true)
	op := []store.Op{{Key: "/registry/pods/default/pod", Value: benchValue}}
	for b.Loop() {
		bytes, err := e.admit(context.Background(), op)
		if err != nil {
			b.Fatal(err)
		}
		e.space.refund(bytes)
	}
}

// BenchmarkMembersFarApart has three members with 5 ms between each two of them, one way. It
// reports round trips (10 ms) for a read index, a write, and a write after a read index as the API
// server makes it (ADR 71), through the leader and through a follower.
func BenchmarkMembersFarApart(b *testing.B) {
	const way = 5 * time.Millisecond
	w := newWires(b)
	all := threeOver(b, w)
	quietKeepers(all)
	leader := leading(b, all)
	follower := all[0]
	if follower == leader {
		follower = all[1]
	}
	w.delay.Store(int64(way))
	defer w.delay.Store(0)
	read := func(e *Engine) error { _, err := e.Revision(context.Background()); return err }
	write := func(e *Engine) error {
		_, err := e.Commit(context.Background(), nil, store.Op{Key: "/k", Value: []byte("v")})
		return err
	}
	for _, at := range []struct {
		name string
		e    *Engine
	}{{"leader", leader}, {"follower", follower}} {
		for _, what := range []struct {
			name string
			do   func(*Engine) error
		}{
			{"read", read}, {"write", write},
			{"caught-up-write", func(e *Engine) error { return cmp.Or(read(e), write(e)) }},
		} {
			for _, clients := range []int{1, 8} {
				b.Run(fmt.Sprintf("%s/%s/%d-clients", at.name, what.name, clients), func(b *testing.B) {
					var took atomic.Int64
					var next atomic.Int64
					var all sync.WaitGroup
					for range clients {
						all.Go(func() {
							for next.Add(1) <= int64(b.N) {
								begin := time.Now()
								if err := what.do(at.e); err != nil {
									b.Error(err)
								}
								took.Add(int64(time.Since(begin)))
							}
						})
					}
					all.Wait()
					b.ReportMetric(float64(took.Load())/float64(b.N)/float64(2*way), "round-trips/op")
				})
			}
		}
	}
}

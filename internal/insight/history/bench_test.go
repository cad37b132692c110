package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

// BenchmarkAppend measures the CPU of one change, with all that the writer does for it.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name   string
		effect Effect
		size   int
	}{{"creation", Created, 0}, {"update of 1 KB", Changed, 1 << 10}, {"update of 4 KB", Changed, 4 << 10}} {
		b.Run(c.name, func(b *testing.B) {
			l := started(b, b.TempDir(), 0)
			states := make([][]byte, 64) // alike, as objects of a kind
			random := rand.New(rand.NewPCG(1, 2))
			for i := range states {
				for len(states[i]) < c.size {
					states[i] = fmt.Appendf(states[i], "field-%d: {value: %d}\n", len(states[i])%400, random.IntN(1000))
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				revision := int64(i + 1)
				w := Write{Key: key(fmt.Sprint("pod-", i%1000)), Revision: revision, Effect: c.effect}
				if c.size > 0 {
					w.Before, w.BeforeRevision = states[i%64], revision-1
				}
				l.Append([]Write{w}, revision, began)
				if i%100 == 99 {
					flush(b, l)
				}
			}
			l.Close()
			if n := l.dropped.Load(); n > 0 {
				b.Fatal(n, "changes were dropped")
			}
			b.ReportMetric(float64(l.files.Bytes())/float64(b.N), "disk-B/op")
		})
	}
}

// BenchmarkUpdates measures the CPU time of updates of few objects. Each changes some bytes.
func BenchmarkUpdates(b *testing.B) {
	const objects = 50
	l := started(b, b.TempDir(), 0)
	random := rand.New(rand.NewPCG(1, 2))
	states := make([][]byte, objects)
	for i := range states {
		for len(states[i]) < 3<<10 {
			states[i] = fmt.Appendf(states[i], "field-%d: {value: %x}\n", len(states[i])%400, random.Uint32())
		}
	}
	before := cpuTime(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		revision, k := int64(i+1), i%objects
		was := states[k]
		now := bytes.Clone(was)
		copy(now[100:], fmt.Appendf(nil, "%08d", i))
		copy(now[2000:], fmt.Appendf(nil, "status %08d", i))
		states[k] = now
		l.Append([]Write{{Key: key(fmt.Sprint("pod-", k)), Revision: revision, Effect: Changed, Before: was, BeforeRevision: max(1, revision-objects), After: now}}, revision, began)
		if i%500 == 499 {
			flush(b, l)
		}
	}
	l.Close()
	if n := l.dropped.Load(); n > 0 {
		b.Fatal(n, "changes were dropped")
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(l.files.Bytes())/float64(b.N), "disk-B/op")
}

// cpuTime is the CPU time in nanoseconds that the process has used.
func cpuTime(tb testing.TB) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

package run

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestTheRoomForGarbageGrowsMoreSlowlyThanWhatLives(t *testing.T) {
	for lives, want := range map[uint64]int{
		0: 100, 20 << 20: 100, 64 << 20: 100, 80 << 20: 88, 96 << 20: 75, 128 << 20: 50, 4 << 30: 50,
	} {
		if got := heapRoom(lives); got != want {
			t.Errorf("%d MB live: %d %%, want %d", lives>>20, got, want)
		}
	}
	before := uint64(0)
	for lives := uint64(0); lives < 1<<30; lives += 1 << 20 {
		limit := lives + lives*uint64(heapRoom(lives))/100
		if limit < before {
			t.Fatalf("with %d MB live the heap may be smaller than with less", lives>>20)
		}
		before = limit
	}
}

func inForce() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestEachCollectionSetsTheRoom(t *testing.T) {
	if inForce() != mostRoom {
		t.Skip("GOGC is set")
	}
	becomes := func(when string, want func(uint64) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !want(inForce()); runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: GOGC is %d", when, inForce())
			}
		}
	}
	stop := keepHeapSmall()
	much := make([]byte, largeHeap)
	becomes("a large heap", func(percent uint64) bool { return percent == leastRoom })
	runtime.KeepAlive(much)
	much = nil
	becomes("a small heap again", func(percent uint64) bool { return percent > leastRoom })
	stop()
	if got := inForce(); got != mostRoom {
		t.Errorf("afterwards GOGC is %d", got)
	}

	defer debug.SetGCPercent(debug.SetGCPercent(30))
	defer keepHeapSmall()()
	runtime.GC()
	if got := inForce(); got != 30 {
		t.Errorf("an administrator's GOGC of 30 became %d", got)
	}
}

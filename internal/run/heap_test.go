package run

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"testing"
	"time"
)

func TestTheRoomForGarbageGrowsMoreSlowlyThanTheLiveHeap(t *testing.T) {
	for lives, want := range map[uint64]int{
		0: 100, 20 << 20: 100, 40 << 20: 100, 48 << 20: 88, 56 << 20: 75, 72 << 20: 50, 4 << 30: 50,
	} {
		if got := heapRoom(lives, false); got != want {
			t.Errorf("%d MB live: %d %%, want %d", lives>>20, got, want)
		}
	}
	for lives, want := range map[uint64]int{0: 400, 15 << 20: 400, 30 << 20: 200, 60 << 20: 100, 120 << 20: 50, 4 << 30: 50} {
		if got := heapRoom(lives, true); got != want {
			t.Errorf("%d MB live, while one collection comes soon after the other: %d %%, want %d", lives>>20, got, want)
		}
	}
	for _, busy := range []bool{false, true} {
		before := uint64(0)
		for lives := uint64(0); lives < 1<<30; lives += 1 << 20 {
			limit := lives + lives*uint64(heapRoom(lives, busy))/100
			if limit+lives/100 < before { // the percentage is rounded
				t.Fatalf("busy %v: with %d MB live the heap may be smaller than with less", busy, lives>>20)
			}
			before = limit
		}
	}
}

// Only a few megabytes are live in a test.
func TestAHeapHasMoreRoomDuringFrequentCollections(t *testing.T) {
	useDefaultGOGC(t)
	k := &heapManager{}
	defer k.keep()()
	if got := inForce(); got != startRoom {
		t.Errorf("at the start GOGC is %d", got)
	}
	collectUntil(t, "one collection after the other", func(percent uint64) bool { return percent > mostRoom && percent <= busyRoom })
	for deadline := time.Now().Add(time.Minute); inForce() != mostRoom; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("after a while without: GOGC is %d", inForce())
		}
		k.mu.Lock()
		k.since = k.since.Add(-busyWithin)
		k.mu.Unlock()
	}
}

func TestTheStartsGarbageIsCollected(t *testing.T) {
	useDefaultGOGC(t)
	k := &heapManager{}
	k.started() // without keep, nothing happens
	defer k.keep()()
	before := forcedCollections()
	k.started()
	for deadline := time.Now().Add(time.Minute); forcedCollections() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not")
		}
	}
}

func inForce() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// collectUntil runs collections until the room satisfies want.
func collectUntil(t *testing.T, when string, want func(uint64) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !want(inForce()); runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: GOGC is %d", when, inForce())
		}
	}
}

func isLeast(percent uint64) bool { return percent == leastRoom }

// useDefaultGOGC gives a test Go's default percentage and no GOGC.
func useDefaultGOGC(t *testing.T) {
	t.Helper()
	before := debug.SetGCPercent(mostRoom)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "")
}

func TestEachCollectionSetsTheRoom(t *testing.T) {
	useDefaultGOGC(t)
	stop := keepHeapSmall()
	much := make([]byte, 2*busyGarbage)
	collectUntil(t, "a large heap", isLeast)
	runtime.KeepAlive(much)
	much = nil
	collectUntil(t, "a small heap again", func(percent uint64) bool { return percent > leastRoom })
	stop()
	if got := inForce(); got != mostRoom {
		t.Errorf("afterwards GOGC is %d", got)
	}
}

func TestMemoryIsReturnedWhenQuietAndWorthwhile(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		heap      heapSizes
		from      uint64
		last      bool
		returning bool
		again     bool
	}{
		"after a burst":                                {heap: heapSizes{live: 100 * mb, allocated: 110 * mb, held: 250 * mb}, returning: true},
		"just started":                                 {heap: heapSizes{live: 14 * mb, allocated: 15 * mb, held: 34 * mb}, returning: true},
		"when it has been given back":                  {heap: heapSizes{live: 14 * mb, allocated: 16 * mb, held: 20 * mb}},
		"while the next collection is near":            {heap: heapSizes{live: 100 * mb, allocated: 130 * mb, held: 250 * mb}, again: true},
		"when that did not come":                       {heap: heapSizes{live: 100 * mb, allocated: 132 * mb, held: 250 * mb}, from: 130 * mb, returning: true},
		"when something may have been forgotten since": {heap: heapSizes{live: 100 * mb, allocated: 101 * mb, held: 103 * mb}, last: true, returning: true},
		"and much is done meanwhile":                   {heap: heapSizes{live: 100 * mb, allocated: 130 * mb, held: 135 * mb}, last: true, again: true},
		"while the process stays busy":                 {heap: heapSizes{live: 400 * mb, allocated: 590 * mb, held: 650 * mb}, from: 480 * mb, again: true},
	} {
		k := &heapManager{room: leastRoom, from: c.from, last: c.last, calm: time.NewTimer(time.Hour)}
		k.calm.Stop()
		if got := k.look(c.heap); got != c.returning {
			t.Errorf("%s: memory is returned: %v", name, got)
		}
		if got := k.calm.Stop(); got != c.again {
			t.Errorf("%s: another check follows: %v", name, got)
		}
	}
}

// Go decides how much memory a burst leaves. There is no quiet period while leftovers of other
// tests allocate, and nothing to return if the runtime has done so already, so several bursts may
// be needed.
func TestMemoryIsReturnedAfterABurst(t *testing.T) {
	useDefaultGOGC(t)
	k := &heapManager{}
	defer k.keep()()
	for deadline := time.Now().Add(time.Minute); ; {
		burst := make([][]byte, 64)
		for i := range burst {
			burst[i] = make([]byte, 1<<20)
		}
		runtime.KeepAlive(burst)
		runtime.GC()
		before := forcedCollections()
		k.rest(k.era)
		if forcedCollections() > before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no memory is returned: %+v", heapNow())
		}
	}
}

// Dropping data allocates nothing, so no collection runs without this check.
func TestDroppedDataIsCollectedByOneMoreCheck(t *testing.T) {
	useDefaultGOGC(t)
	// The timer is so long that only the test triggers the check.
	k := &heapManager{room: mostRoom, calm: time.AfterFunc(time.Hour, func() {})}
	defer k.calm.Stop()
	kept := make([]byte, 2*smallHeap)
	for deadline := time.Now().Add(time.Minute); !k.last; {
		if time.Now().After(deadline) {
			t.Fatalf("the live heap is large, but no check follows: %+v", heapNow())
		}
		burst := make([]byte, 64<<20)
		runtime.KeepAlive(burst)
		runtime.GC()
		k.rest(k.era)
	}
	runtime.KeepAlive(kept)
	// Leftovers of other tests may allocate.
	for deadline := time.Now().Add(time.Minute); ; k.last = true {
		before := forcedCollections()
		k.rest(k.era)
		if k.last {
			t.Error("there is more than one further check")
		}
		if forcedCollections() > before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the dropped data is not collected: %+v", heapNow())
		}
		runtime.GC()
	}
}

func forcedCollections() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumForcedGC
}

func TestTheRoomIsKeptUntilTheLastUserStops(t *testing.T) {
	useDefaultGOGC(t)
	much := make([]byte, 2*busyGarbage)
	defer func() { runtime.KeepAlive(much) }()
	first, second := keepHeapSmall(), keepHeapSmall()
	collectUntil(t, "two keep it", isLeast)
	first()
	first() // stops the first one
	if got := inForce(); got != leastRoom {
		t.Errorf("one has stopped: GOGC is %d", got)
	}
	third := keepHeapSmall()
	second()
	collectUntil(t, "another keeps it", isLeast)
	third()
	for range 3 {
		if got := inForce(); got != mostRoom {
			t.Errorf("all have stopped: GOGC is %d", got)
		}
		runtime.GC()
	}
	defer keepHeapSmall()()
	collectUntil(t, "one begins again", isLeast)
}

func TestAnAdministratorsGOGCIsNotChanged(t *testing.T) {
	much := make([]byte, 2*busyGarbage)
	defer func() { runtime.KeepAlive(much) }()
	for _, room := range []int{30, mostRoom} {
		useDefaultGOGC(t)
		t.Setenv("GOGC", strconv.Itoa(room))
		debug.SetGCPercent(room)
		stop := keepHeapSmall()
		runtime.GC()
		runtime.GC()
		if got := inForce(); got != uint64(room) {
			t.Errorf("an administrator's GOGC of %d became %d", room, got)
		}
		stop()
	}
	useDefaultGOGC(t)
	debug.SetGCPercent(30)
	defer keepHeapSmall()()
	runtime.GC()
	if got := inForce(); got != 30 {
		t.Errorf("what the program has set itself, 30, became %d", got)
	}
}

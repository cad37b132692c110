package apiserver

import (
	"runtime"
	"testing"
	"time"
)

func TestBusyWatchesGatherEvents(t *testing.T) {
	perTick := int64(flushesPerCPU * runtime.GOMAXPROCS(0) / int(time.Second/paceTick))
	for name, tc := range map[string]struct {
		busy, ticks int64
		want        time.Duration
	}{
		"a few watches do not":                         {3, 1, 0},
		"half of what can be written to in a tick":     {perTick / 2, 1, paceTick / 2},
		"as many as can be written to in a tick":       {perTick, 1, paceTick},
		"no event waits longer, however many they are": {100 * perTick, 1, paceTick},
		"nor after a pause":                            {100 * perTick, 2, 0},
	} {
		p := newPace()
		p.adjust(tc.busy, tc.ticks)
		if got := time.Duration(p.gap.Load()); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestAWatchCountsOnceInATick(t *testing.T) {
	p := newPace()
	p.since = p.since.Add(-paceTick) // not in the first tick, which is the zero value's
	w := &paced{}
	for range 100 {
		p.flushed(w)
	}
	if n := p.busy.Load(); n > 2 { // a tick may have ended meanwhile
		t.Errorf("one watch counts as %d", n)
	}
}

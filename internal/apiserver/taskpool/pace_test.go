package taskpool

import (
	"runtime"
	"testing"
	"time"
)

func TestBusyWatchesGatherEvents(t *testing.T) {
	perTick := int64(flushesPerCPU * runtime.GOMAXPROCS(0) / int(time.Second/Tick))
	for name, tc := range map[string]struct {
		busy, ticks int64
		want        time.Duration
	}{
		"a few watches do not gather":              {3, 1, 0},
		"half of what can be written to in a tick": {perTick / 2, 1, Tick / 2},
		"as many as can be written to in a tick":   {perTick, 1, Tick},
		"no event waits longer than a tick":        {100 * perTick, 1, Tick},
		"no event waits after a pause":             {100 * perTick, 2, 0},
	} {
		p := NewPace()
		p.adjust(tc.busy, tc.ticks)
		if got := time.Duration(p.gap.Load()); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestAWatchCountsOnceInATick(t *testing.T) {
	p := NewPace()
	p.since = p.since.Add(-Tick) // the zero value of Paced is in the first tick
	w := &Paced{}
	for range 100 {
		p.Wrote(w)
	}
	if n := p.busy.Load(); n > 2 { // a tick may have ended in between
		t.Errorf("one watch counts as %d", n)
	}
}

package flow

import (
	"math"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
)

func TestUtilizationIsWeightedByTime(t *testing.T) {
	now := time.Unix(0, 0)
	l := &level{name: "l", utilization: newUtilization(func() time.Time { return now })}
	l.configure("", levelShape{queues: 1, handSize: 1, queueLength: 10, nominal: 4, lower: 4, upper: 4})
	enter := func(width int) seats {
		_, s, _, _ := l.enter(width, 0, now, noDetails)
		return s
	}
	now = now.Add(2 * time.Second) // idle for two seconds
	two, rest := enter(2), enter(2)
	now = now.Add(time.Second)
	enter(4) // waits for a second
	now = now.Add(time.Second)
	l.exit(two, time.Second)
	l.exit(rest, time.Second) // now the wide one has its seats
	now = now.Add(time.Second)
	c := l.utilizationNow()
	seconds := func(w timeWeighted, bound float64) uint64 {
		return w.counts[slices.Index(w.bounds, bound)] / uint64(time.Second)
	}
	if idle, full := seconds(c.seats, 0), seconds(c.seats, 1); idle != 2 || full != 3 {
		t.Errorf("seats were unused for %d s and all used for %d s", idle, full)
	}
	if single, double := seconds(c.demand, 1), seconds(c.demand, 2); single != 2 || double != 1 {
		t.Errorf("all seats were wanted for %d s, twice as many for %d s", single, double)
	}
	if waited := seconds(c.waiting, 0.1); waited != 1 {
		t.Errorf("a tenth of the queue was used for %d s", waited)
	}
	l.demand()
	// Over five seconds: 0, 0, 4, 8, 4.
	if c := l.utilization; c.average != 3.2 || math.Abs(c.deviation-math.Sqrt(96.0/5-3.2*3.2)) > 1e-9 || c.highest != 8 {
		t.Errorf("demand was %v ± %v, %v at most", c.average, c.deviation, c.highest)
	}
	var out dto.Metric
	if err := c.seats.metric(descSeats, "l", "executing").Write(&out); err != nil || out.GetHistogram().GetSampleCount() != uint64(5*time.Second) || out.GetHistogram().GetSampleSum() != 3e9 {
		t.Errorf("%v: %v", err, out.GetHistogram())
	}
}

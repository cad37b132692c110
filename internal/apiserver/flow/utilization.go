package flow

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// timeWeighted is a histogram of a value over time: each nanosecond counts as one observation of
// the value. This is how upstream reports utilization.
type timeWeighted struct {
	bounds []float64
	counts []uint64 // nanoseconds by bucket; the last one is for values above all bounds
	sum    float64
}

func newTimeWeighted(bounds []float64) timeWeighted {
	return timeWeighted{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// observeFor adds that the value lasted for the given time.
func (w *timeWeighted) observeFor(value float64, nanoseconds int64) {
	i := 0
	for i < len(w.bounds) && value > w.bounds[i] {
		i++
	}
	w.counts[i] += uint64(nanoseconds)
	w.sum += value * float64(nanoseconds)
}

// metric returns the current histogram.
func (w *timeWeighted) metric(d *prometheus.Desc, labels ...string) prometheus.Metric {
	total, buckets := uint64(0), make(map[float64]uint64, len(w.bounds))
	for i, n := range w.counts {
		total += n
		if i < len(w.bounds) {
			buckets[w.bounds[i]] = total
		}
	}
	return prometheus.MustNewConstHistogram(d, total, w.sum, buckets, labels...)
}

func (w timeWeighted) clone() timeWeighted {
	w.counts = slices.Clone(w.counts)
	return w
}

var (
	demandBounds  = []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6}
	seatBounds    = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
	requestBounds = []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1}
)

// utilization is how busy a level was.
type utilization struct {
	clock func() time.Time // nil disables the figures
	since time.Time        // when the figures last changed

	demand, seats, executing, waiting timeWeighted

	// Of the current period between two adjustments: demand × seconds, its square × seconds,
	// seconds.
	sum, squares, seconds float64
	// Of the last period.
	average, deviation, highest float64
}

func newUtilization(clock func() time.Time) utilization {
	return utilization{clock: clock, since: clock(), demand: newTimeWeighted(demandBounds), seats: newTimeWeighted(seatBounds), executing: newTimeWeighted(requestBounds), waiting: newTimeWeighted(requestBounds)}
}

// elapse accounts for the time since the figures last changed. It is called, with the level locked,
// before they change again.
func (l *level) elapse() {
	if l.utilization.clock != nil {
		l.elapseTo(l.utilization.clock())
	}
}

// elapseTo is elapse at a given time.
func (l *level) elapseTo(now time.Time) {
	c := &l.utilization
	if c.clock == nil {
		return
	}
	took := now.Sub(c.since).Nanoseconds()
	if took <= 0 {
		return
	}
	c.since = now
	demand := float64(l.inUse + l.waitSeats)
	c.sum += demand * float64(took) / 1e9
	c.squares += demand * demand * float64(took) / 1e9
	c.seconds += float64(took) / 1e9
	c.demand.observeFor(share(l.inUse+l.waitSeats, l.shape.nominal), took)
	c.seats.observeFor(share(l.inUse, l.limit), took)
	c.executing.observeFor(share(l.executing, l.limit), took)
	c.waiting.observeFor(share(l.waiting, l.shape.queues*l.shape.queueLength), took)
}

// share returns n as a fraction of a limit, or n itself if there is no limit.
func share(n, of int) float64 {
	if of <= 0 {
		return float64(n)
	}
	return float64(n) / float64(of)
}

// period ends a period between two adjustments.
func (l *level) period(highest int) {
	l.elapse()
	c := &l.utilization
	c.average, c.deviation, c.highest = 0, 0, float64(highest)
	if c.seconds > 0 {
		c.average = c.sum / c.seconds
		c.deviation = math.Sqrt(max(0, c.squares/c.seconds-c.average*c.average))
	}
	c.sum, c.squares, c.seconds = 0, 0, 0
}

var (
	descDemand      = describe("demand_seats", "Observations, at the end of every nanosecond, of (the number of seats each priority level could use) / (nominal number of seats for that level)", "priority_level")
	descHighest     = describe("demand_seats_high_watermark", "High watermark, over last adjustment period, of demand_seats", "priority_level")
	descAverage     = describe("demand_seats_average", "Time-weighted average, over last adjustment period, of demand_seats", "priority_level")
	descDeviation   = describe("demand_seats_stdev", "Time-weighted standard deviation, over last adjustment period, of demand_seats", "priority_level")
	descSeats       = describe("priority_level_seat_utilization", "Observations, at the end of every nanosecond, of utilization of seats for any stage of execution (but only initial stage for WATCHes)", "priority_level", "phase")
	descRequests    = describe("priority_level_request_utilization", "Observations, at the end of every nanosecond, of number of requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial stage for WATCHes)", "priority_level", "phase")
	descUtilization = []*prometheus.Desc{descDemand, descHighest, descAverage, descDeviation, descSeats, descRequests}
)

// utilizationNow returns a copy of the utilization up to now.
func (l *level) utilizationNow() utilization {
	l.elapse()
	c := l.utilization
	c.demand, c.seats, c.executing, c.waiting = c.demand.clone(), c.seats.clone(), c.executing.clone(), c.waiting.clone()
	return c
}

func (c *utilization) collect(ch chan<- prometheus.Metric, level string) {
	if c.clock == nil {
		return
	}
	ch <- c.demand.metric(descDemand, level)
	ch <- prometheus.MustNewConstMetric(descHighest, prometheus.GaugeValue, c.highest, level)
	ch <- prometheus.MustNewConstMetric(descAverage, prometheus.GaugeValue, c.average, level)
	ch <- prometheus.MustNewConstMetric(descDeviation, prometheus.GaugeValue, c.deviation, level)
	ch <- c.seats.metric(descSeats, level, "executing")
	ch <- c.executing.metric(descRequests, level, "executing")
	ch <- c.waiting.metric(descRequests, level, "waiting")
}

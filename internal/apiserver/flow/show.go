package flow

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// waitMetrics measure requests: waiting time, queue length, duration and width. Exempt requests do
// not wait, and so are not in the first two.
type waitMetrics struct{ durations, lengths, execution, widths *prometheus.HistogramVec }

func newWaitMetrics() waitMetrics {
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_flowcontrol_" + name, Help: help, Buckets: buckets}, append([]string{"priority_level", "flow_schema"}, labels...))
	}
	return waitMetrics{
		histogram("request_wait_duration_seconds", "Length of time a request spent waiting in its queue", []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}, "execute"),
		histogram("request_queue_length_after_enqueue", "Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
			[]float64{0, 10, 25, 50, 100, 250, 500, 1000}),
		histogram("request_execution_seconds", "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
			[]float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}, "type"),
		histogram("work_estimated_seats", "Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
			[]float64{1, 2, 4, 8, 16, 32, 64, 100}),
	}
}

func (m waitMetrics) all() []*prometheus.HistogramVec {
	return []*prometheus.HistogramVec{m.durations, m.lengths, m.execution, m.widths}
}

// series creates one of a metric's series on its first use, as upstream, and keeps it. Without
// this, sums over a level would include series of requests that never came.
type series func() prometheus.Observer

func seriesOf(v *prometheus.HistogramVec, labels ...string) series {
	return sync.OnceValue(func() prometheus.Observer { return v.WithLabelValues(labels...) })
}

// of gives a schema its series.
func (m waitMetrics) of(s *schema) {
	s.execution = [2]series{seriesOf(m.execution, s.level.name, s.name, "regular"), seriesOf(m.execution, s.level.name, s.name, "watch")}
	s.width = seriesOf(m.widths, s.level.name, s.name)
	if !s.shape.exempt {
		s.wait = seriesOf(m.durations, s.level.name, s.name, "true")
		s.length = seriesOf(m.lengths, s.level.name, s.name)
	}
}

// began counts a request that gets seats.
func (s *schema) began(t *Ticket) {
	s.served.Add(1)
	s.inProgress.executing.Add(1)
	s.inProgress.inUse.Add(int64(t.seats.width))
	s.width().Observe(float64(t.seats.width))
}

func (s *schema) ended(t *Ticket, took time.Duration) {
	s.inProgress.executing.Add(-1)
	s.inProgress.inUse.Add(-int64(t.seats.width))
	kind := 0
	if t.watch {
		kind = 1
	}
	s.execution[kind]().Observe(took.Seconds())
}

// waited records a request's time in a queue, and the queue's length at its arrival, including
// itself; 0 and 1 if it found seats at once.
func (m waitMetrics) waited(s *schema, executed bool, waited time.Duration, company int) {
	if s.wait == nil {
		return
	}
	s.length().Observe(float64(company))
	if !executed {
		m.durations.WithLabelValues(s.level.name, s.name, "false").Observe(waited.Seconds())
		return
	}
	s.wait().Observe(waited.Seconds())
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("apiserver_flowcontrol_"+name, help, labels, nil)
}

var (
	descExecuting  = describe("current_executing_requests", "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem", "priority_level", "flow_schema")
	descInUse      = describe("current_executing_seats", "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem", "priority_level", "flow_schema")
	descWaiting    = describe("current_inqueue_requests", "Number of requests currently pending in queues of the API Priority and Fairness subsystem", "priority_level", "flow_schema")
	descWanted     = describe("current_inqueue_seats", "Number of seats currently pending in queues of the API Priority and Fairness subsystem", "priority_level", "flow_schema")
	descInQueue    = prometheus.NewDesc("apiserver_current_inqueue_requests", "Maximal number of queued requests in this apiserver per request kind in last second.", []string{"request_kind"}, nil)
	descTarget     = describe("target_seats", "Seat allocation targets", "priority_level")
	descLimit      = describe("current_limit_seats", "current derived number of execution seats available to each priority level", "priority_level")
	descNominal    = describe("nominal_limit_seats", "Nominal number of execution seats configured for each priority level", "priority_level")
	descLower      = describe("lower_limit_seats", "Configured lower bound on number of execution seats available to each priority level", "priority_level")
	descUpper      = describe("upper_limit_seats", "Configured upper bound on number of execution seats available to each priority level", "priority_level")
	descSmoothed   = describe("demand_seats_smoothed", "Smoothed seat demands", "priority_level")
	descDispatched = describe("dispatched_requests_total", "Number of requests executed by API Priority and Fairness subsystem", "priority_level", "flow_schema")
	descRejected   = describe("rejected_requests_total", "Number of requests rejected by API Priority and Fairness subsystem", "priority_level", "flow_schema", "reason")
)

// Describe implements prometheus.Collector.
func (g *Gate) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{descExecuting, descInUse, descWaiting, descWanted, descTarget, descLimit, descNominal, descLower, descUpper, descSmoothed, descDispatched, descRejected}, descUtilization...) {
		ch <- d
	}
	ch <- descInQueue
	for _, v := range g.waits.all() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It reads the figures at that moment.
func (g *Gate) Collect(ch chan<- prometheus.Metric) {
	t := g.table.Load()
	if t == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, l := range t.levels {
		l.mu.Lock()
		shape, limit, smoothed, course := l.shape, l.limit, l.smoothed, l.utilizationNow()
		l.mu.Unlock()
		course.collect(ch, l.name)
		gauge(descLimit, float64(limit), l.name)
		gauge(descTarget, float64(limit), l.name)
		gauge(descNominal, float64(shape.nominal), l.name)
		gauge(descLower, float64(shape.lower), l.name)
		gauge(descUpper, float64(shape.upper), l.name)
		gauge(descSmoothed, smoothed, l.name)
	}
	for _, s := range t.schemas {
		gauge(descExecuting, float64(s.inProgress.executing.Load()), s.level.name, s.name)
		gauge(descInUse, float64(s.inProgress.inUse.Load()), s.level.name, s.name)
		gauge(descWaiting, float64(s.inProgress.waiting.Load()), s.level.name, s.name)
		gauge(descWanted, float64(s.inProgress.wanted.Load()), s.level.name, s.name)
		if n := s.served.Load(); n > 0 {
			ch <- prometheus.MustNewConstMetric(descDispatched, prometheus.CounterValue, float64(n), s.level.name, s.name)
		}
		for i, reason := range refusals {
			if n := s.refusedBy[i].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(descRejected, prometheus.CounterValue, float64(n), s.level.name, s.name, reason)
			}
		}
	}
	gauge(descInQueue, float64(g.queued[readOnly].Load()), "readOnly")
	gauge(descInQueue, float64(g.queued[mutating].Load()), "mutating")
	for _, v := range g.waits.all() {
		v.Collect(ch)
	}
}

// eachLevel calls fn for every level, in the order of names, with its lock held.
func (g *Gate) eachLevel(fn func(*level)) {
	t := g.table.Load()
	if t == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(t.levels)) {
		l := t.levels[name]
		l.mu.Lock()
		fn(l)
		l.mu.Unlock()
	}
}

// Show writes one of upstream's debug pages, with its columns: dump_priority_levels, dump_queues or
// dump_requests (the waiting ones; details adds users and objects).
func (g *Gate) Show(w io.Writer, page string, details bool) (found bool, err error) {
	tw := tabwriter.NewWriter(w, 8, 0, 1, ' ', 0)
	row := func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				_, _ = fmt.Fprint(tw, ",\t") // a tabwriter reports its error at Flush
			}
			_, _ = fmt.Fprint(tw, c)
		}
		_, _ = fmt.Fprintln(tw)
	}
	switch page {
	case "dump_priority_levels":
		row("PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests", "DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests")
		g.eachLevel(func(l *level) {
			active := 0
			for i := range l.queues {
				if len(l.queues[i].waiters) > 0 {
					active++
				}
			}
			row(l.name, active, l.executing == 0 && l.waiting == 0, false, l.waiting, l.executing, l.counts.dispatched, l.counts.refused, l.counts.timedOut, l.counts.cancelled)
		})
	case "dump_queues":
		row("PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum")
		g.eachLevel(func(l *level) {
			for i := range l.queues {
				q := &l.queues[i]
				row(l.name, i, len(q.waiters), q.executing, q.executing, seatSeconds(q.due), q.seats, q.seats, seatSeconds(float64(q.seats)*l.expected()))
			}
		})
	case "dump_requests":
		columns := []any{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime"}
		if details {
			columns = append(columns, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
		}
		row(columns...)
		g.eachLevel(func(l *level) {
			for i := range l.queues {
				for n, w := range l.queues[i].waiters {
					// Requests hold no seats after their end (FinalSeats, AdditionalLatency), and a
					// waiting one has not started.
					cells := []any{l.name, w.schema, i, n, w.flow, w.since.UTC().Format(time.RFC3339Nano), w.width, 0, time.Duration(0), time.Time{}.Format(time.RFC3339Nano)}
					if r := &w.about; details {
						cells = append(cells, r.User.Name, r.Verb, r.Path, r.Namespace, r.Name, r.Version, r.Resource, r.Subresource)
					}
					row(cells...)
				}
			}
		})
	default:
		return false, nil
	}
	return true, tw.Flush()
}

// seatSeconds formats an amount of work as upstream does.
func seatSeconds(work float64) string { return fmt.Sprintf("%.8fss", work) }

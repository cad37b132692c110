package scheduler

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Metrics count the work of schedulers, under upstream's names. Safe for concurrent use.
type Metrics struct {
	attempts       *prometheus.CounterVec
	attemptTimes   *prometheus.HistogramVec
	decisionTimes  prometheus.Histogram
	podTimes       *prometheus.HistogramVec
	podAttempts    prometheus.Histogram
	preemptions    prometheus.Counter
	victims        prometheus.Histogram
	incoming       *prometheus.CounterVec
	extensionTimes *prometheus.HistogramVec
	pending        pendingPods
}

// NewMetrics returns metrics for the schedulers of one registry.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scheduler_" + name, Help: help, Buckets: buckets}, labels)
	}
	single := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "scheduler_" + name, Help: help, Buckets: buckets})
	}
	attemptSeconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	return &Metrics{
		attempts: counter("schedule_attempts_total",
			"Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.", "result", "profile"),
		attemptTimes: histogram("scheduling_attempt_duration_seconds",
			"Scheduling attempt latency in seconds (scheduling algorithm + binding)", attemptSeconds, "result", "profile"),
		decisionTimes: single("scheduling_algorithm_duration_seconds", "Scheduling algorithm latency in seconds", attemptSeconds),
		podTimes: histogram("pod_scheduling_sli_duration_seconds",
			"E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
			prometheus.ExponentialBuckets(0.01, 2, 20), "attempts"),
		podAttempts: single("pod_scheduling_attempts", "Number of attempts to successfully schedule a pod.", prometheus.ExponentialBuckets(1, 2, 5)),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_preemption_attempts_total", Help: "Total preemption attempts in the cluster till now",
		}),
		victims:  single("preemption_victims", "Number of selected preemption victims", prometheus.ExponentialBuckets(1, 2, 7)),
		incoming: counter("queue_incoming_pods_total", "Number of pods added to scheduling queues by event and queue type.", "queue", "event"),
		extensionTimes: histogram("framework_extension_point_duration_seconds",
			"Latency for running all plugins of a specific extension point.", prometheus.ExponentialBuckets(0.0001, 2, 12), "extension_point", "status", "profile"),
	}
}

// Collectors returns the collectors for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.attempts, m.attemptTimes, m.decisionTimes, m.podTimes, m.podAttempts, m.preemptions, m.victims, m.incoming, m.extensionTimes, &m.pending,
	}
}

// Results of an attempt.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

// attempted counts an attempt that began at since, with its result.
func (m *Metrics) attempted(pod *corev1.Pod, result string, since time.Time) {
	m.attempts.WithLabelValues(result, pod.Spec.SchedulerName).Inc()
	m.attemptTimes.WithLabelValues(result, pod.Spec.SchedulerName).Observe(time.Since(since).Seconds())
}

// bound counts a pod that was bound to its node.
func (m *Metrics) bound(c *cycle) {
	m.attempted(c.pod, resultScheduled, c.began)
	m.podAttempts.Observe(float64(c.attempts))
	m.podTimes.WithLabelValues(strconv.Itoa(min(c.attempts, mostAttempts))).Observe(time.Since(c.since).Seconds())
}

// queuedTo counts a pod that an event moved to a place of the queue.
func (m *Metrics) queuedTo(p place, event string) {
	m.incoming.WithLabelValues(p.String(), event).Inc()
}

// Statuses of an extension point, in upstream's words.
const (
	statusSuccess       = "Success"
	statusUnschedulable = "Unschedulable"
	statusError         = "Error"
)

// stopwatch measures the extension points of an attempt, one after the other.
type stopwatch struct {
	times   *prometheus.HistogramVec
	profile string
	since   time.Time
}

func (m *Metrics) stopwatch(profile *framework.Profile, since time.Time) *stopwatch {
	return &stopwatch{m.extensionTimes, profile.SchedulerName, since}
}

// lap records the time since the last lap for an extension point.
func (w *stopwatch) lap(point, status string) {
	now := time.Now()
	w.times.WithLabelValues(point, status, w.profile).Observe(now.Sub(w.since).Seconds())
	w.since = now
}

// outcomeOf returns the status of an extension point that ended with err.
func outcomeOf(err error) string {
	if err != nil {
		return statusError
	}
	return statusSuccess
}

// status returns the status of the decision's last extension point.
func (d *Decision) status() string {
	if d.Err == nil && d.Whole != nil {
		return statusUnschedulable
	}
	return outcomeOf(d.Err)
}

// mostAttempts limits the values of a label.
const mostAttempts = 16

// pendingPods asks the running schedulers for their numbers of pods when it is collected.
type pendingPods struct {
	mu sync.Mutex
	of map[*Scheduler]struct{}
}

var (
	descPending = prometheus.NewDesc("scheduler_pending_pods",
		"Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.",
		[]string{"queue"}, nil)
	descRefused = prometheus.NewDesc("scheduler_unschedulable_pods",
		"The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
		[]string{"plugin", "profile"}, nil)
	descCache = prometheus.NewDesc("scheduler_cache_size", "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.", []string{"type"}, nil)
)

func (p *pendingPods) add(s *Scheduler) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[*Scheduler]struct{}{}
	}
	p.of[s] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.of, s)
	}
}

// Describe implements prometheus.Collector.
func (p *pendingPods) Describe(ch chan<- *prometheus.Desc) {
	ch <- descPending
	ch <- descRefused
	ch <- descCache
}

// answerWithin bounds the wait for a scheduler that is busy or ending.
const answerWithin = 5 * time.Second

// Collect implements prometheus.Collector.
func (p *pendingPods) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	answers := make(chan sizes, len(p.of))
	asked := len(p.of)
	for s := range p.of {
		s.post(func(time.Time) { answers <- s.sizes() })
	}
	p.mu.Unlock()
	timer := time.NewTimer(answerWithin)
	defer timer.Stop()
	var sum sizes
	for range asked {
		select {
		case one := <-answers:
			for place, n := range one.places {
				sum.places[place] += n
			}
			for by, n := range one.refused {
				if sum.refused == nil {
					sum.refused = map[refusal]int{}
				}
				sum.refused[by] += n
			}
			sum.gated += one.gated
			sum.nodes, sum.pods, sum.assumed = sum.nodes+one.nodes, sum.pods+one.pods, sum.assumed+one.assumed
		case <-timer.C:
			return
		}
	}
	gauge := func(d *prometheus.Desc, n int, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
	}
	gauge(descPending, sum.places[active], "active")
	gauge(descPending, sum.places[backoff], "backoff")
	gauge(descPending, sum.places[unschedulable], "unschedulable")
	gauge(descPending, sum.gated, "gated")
	for by, n := range sum.refused {
		ch <- prometheus.MustNewConstMetric(descRefused, prometheus.GaugeValue, float64(n), by.plugin, by.profile)
	}
	gauge(descCache, sum.nodes, "nodes")
	gauge(descCache, sum.pods, "pods")
	gauge(descCache, sum.assumed, "assumed_pods")
}

// sizes are the numbers of pods in each place, and of known nodes and pods.
type sizes struct {
	places               [inFlight + 1]int
	refused              map[refusal]int
	gated                int
	nodes, pods, assumed int
}

// refusal names the plugin and the profile that refused a pod.
type refusal struct{ plugin, profile string }

// sizes runs in the scheduler's goroutine.
func (s *Scheduler) sizes() (n sizes) {
	n.refused = map[refusal]int{}
	for _, p := range s.queue.pods {
		n.places[p.place]++
		for _, plugin := range p.refused {
			n.refused[refusal{plugin, p.info.Pod.Spec.SchedulerName}]++
		}
	}
	for _, profile := range s.gated {
		n.refused[refusal{"SchedulingGates", profile}]++
	}
	n.gated = len(s.gated)
	n.nodes, n.pods, n.assumed = len(s.cluster.nodes), len(s.cluster.where), len(s.cluster.assumed)
	return n
}

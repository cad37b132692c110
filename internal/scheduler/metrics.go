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
	permitWaits    *prometheus.HistogramVec
	configurations *prometheus.CounterVec
	eventTimes     *prometheus.HistogramVec
	hintTimes      *prometheus.HistogramVec
	pluginTimes    *prometheus.HistogramVec
	afterFlush     prometheus.Counter
	goroutines     *prometheus.GaugeVec
	evaluations    *prometheus.CounterVec
	evictions      *prometheus.CounterVec
	evictionTimes  *prometheus.HistogramVec
	claims         *prometheus.CounterVec
	// The groups' are shown once a group was tried.
	groupAttempts      *prometheus.CounterVec
	groupAttemptTimes  *prometheus.HistogramVec
	groupDecisionTimes *prometheus.HistogramVec
	pending            pendingPods
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
		configurations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "knarr_scheduler_configurations_total", Help: "Contents of the scheduler's configuration file that were read, by the result: in use, or refused.",
		}, []string{"result"}),
		eventTimes: histogram("event_handling_duration_seconds", "Event handling latency in seconds.", prometheus.ExponentialBuckets(0.0001, 2, 12), "event"),
		hintTimes: histogram("queueing_hint_execution_duration_seconds", "Duration for running a queueing hint function of a plugin.",
			prometheus.ExponentialBuckets(0.00001, 1.5, 20), "plugin", "event", "hint"),
		pluginTimes: histogram("plugin_execution_duration_seconds", "Duration for running a plugin at a specific extension point.",
			prometheus.ExponentialBuckets(0.00001, 1.5, 20), "plugin", "extension_point", "status"),
		afterFlush: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_pod_scheduled_after_flush_total", Help: "Number of pods that were successfully scheduled after being flushed from unschedulablePods due to timeout. This metric helps detect potential queueing hint misconfigurations or event handling issues.",
		}),
		goroutines: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_goroutines", Help: "Number of running goroutines split by the work they do such as binding.",
		}, []string{"operation"}),
		evaluations: counter("plugin_evaluation_total",
			"Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, PreScore, and Score).", "plugin", "extension_point", "profile"),
		evictions:     counter("preemption_goroutines_execution_total", "Number of preemption goroutines executed.", "result"),
		evictionTimes: histogram("preemption_goroutines_duration_seconds", "Duration in seconds for running goroutines for the preemption.", prometheus.ExponentialBuckets(0.01, 2, 20), "result"),
		claims:        counter("resourceclaim_creates_total", "Number of ResourceClaims creation requests within scheduler", "status"),
		groupAttempts: counter("podgroup_schedule_attempts_total",
			"Number of attempts to schedule pod group, by the result. 'unschedulable' means a pod group could not be scheduled, while 'error' means an internal scheduler problem.", "result", "profile"),
		groupAttemptTimes: histogram("podgroup_scheduling_attempt_duration_seconds",
			"Pod group scheduling attempt latency in seconds (scheduling algorithm + binding)", attemptSeconds, "result", "profile"),
		groupDecisionTimes: histogram("podgroup_scheduling_algorithm_duration_seconds", "Pod group scheduling algorithm latency in seconds", attemptSeconds),
		permitWaits:        histogram("permit_wait_duration_seconds", "Duration of waiting on permit.", attemptSeconds, "result"),
	}
}

// Collectors returns the collectors for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.attempts, m.attemptTimes, m.decisionTimes, m.podTimes, m.podAttempts, m.preemptions, m.victims, m.incoming, m.extensionTimes, m.permitWaits, m.configurations,
		m.eventTimes, m.hintTimes, m.pluginTimes, m.afterFlush, &m.pending,
		m.goroutines, m.evaluations, m.evictions, m.evictionTimes, m.claims, m.groupAttempts, m.groupAttemptTimes, m.groupDecisionTimes,
	}
}

// Results of an attempt.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
	// resultWaitsForVictims is the result for a group that fits once its victims are gone.
	resultWaitsForVictims = "waiting_on_preemption"
)

// attempted counts an attempt that began at since, with its result.
func (m *Metrics) attempted(pod *corev1.Pod, result string, since time.Time) {
	m.attempts.WithLabelValues(result, pod.Spec.SchedulerName).Inc()
	m.attemptTimes.WithLabelValues(result, pod.Spec.SchedulerName).Observe(time.Since(since).Seconds())
}

// groupAttempted counts an attempt for a group that began at since, with its result.
func (m *Metrics) groupAttempted(profile *framework.Profile, result string, since time.Time) {
	m.groupAttempts.WithLabelValues(result, profile.SchedulerName).Inc()
	m.groupAttemptTimes.WithLabelValues(result, profile.SchedulerName).Observe(time.Since(since).Seconds())
}

// working counts a goroutine until done is called.
func (m *Metrics) working(operation string) (done func()) {
	gauge := m.goroutines.WithLabelValues(operation)
	gauge.Inc()
	return gauge.Dec
}

// evicted counts the evictions for a pod, which began at since.
func (m *Metrics) evicted(complete bool, since time.Time) {
	result := "success"
	if !complete {
		result = "error"
	}
	m.evictions.WithLabelValues(result).Inc()
	m.evictionTimes.WithLabelValues(result).Observe(time.Since(since).Seconds())
}

// claimCreated counts an attempt to create a ResourceClaim.
func (m *Metrics) claimCreated(err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	m.claims.WithLabelValues(status).Inc()
}

// bound counts a pod that was bound to its node.
func (m *Metrics) bound(c *cycle) {
	m.attempted(c.pod, resultScheduled, c.began)
	m.podAttempts.Observe(float64(c.attempts))
	if c.flushed {
		m.afterFlush.Inc()
	}
	m.podTimes.WithLabelValues(strconv.Itoa(min(c.attempts, mostAttempts))).Observe(time.Since(c.since).Seconds())
}

// permitWaited counts a pod whose wait for a permission began at since.
func (m *Metrics) permitWaited(status *framework.Status, since time.Time) {
	m.permitWaits.WithLabelValues(outcomeOf(status)).Observe(time.Since(since).Seconds())
}

// hinted records a question to a plugin's hint.
func (m *Metrics) hinted(plugin string, event framework.Events, helps bool, since time.Time) {
	answer := "QueueSkip"
	if helps {
		answer = "Queue"
	}
	m.hintTimes.WithLabelValues(plugin, event.Name(), answer).Observe(time.Since(since).Seconds())
}

// ran records a call of a plugin that began at since.
func (m *Metrics) ran(p framework.Plugin, point string, status *framework.Status, since time.Time) {
	m.pluginTimes.WithLabelValues(p.Name(), point, outcomeOf(status)).Observe(time.Since(since).Seconds())
}

// configured counts a content of the configuration file.
func (m *Metrics) configured(err error) {
	result := "used"
	if err != nil {
		result = "refused"
	}
	m.configurations.WithLabelValues(result).Inc()
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

// outcomeOf returns the name of a status.
func outcomeOf(status *framework.Status) string {
	switch {
	case status.OK():
		return statusSuccess
	case status.Code == framework.Wait:
		return "Wait"
	case status.Skipped():
		return "Skip"
	case status.Rejected():
		return statusUnschedulable
	default:
		return statusError
	}
}

// status returns the status of the decision's last extension point.
func (d *Decision) status() string {
	switch {
	case d.Err != nil:
		return statusError
	case d.Whole != nil:
		return statusUnschedulable
	default:
		return statusSuccess
	}
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
	gauge(descPending, sum.places[gated], "gated")
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
	n.nodes, n.pods, n.assumed = len(s.cluster.nodes), len(s.cluster.where), len(s.cluster.assumed)
	return n
}

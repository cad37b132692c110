package scheduler

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Metrics of scheduling, under upstream's names; the collectors are the process's.
var (
	attemptSeconds = prometheus.ExponentialBuckets(0.001, 2, 15)

	scheduleAttempts = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_schedule_attempts_total",
		Help: "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem."}, []string{"result", "profile"})
	attemptTimes = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scheduler_scheduling_attempt_duration_seconds", Buckets: attemptSeconds,
		Help: "Scheduling attempt latency in seconds (scheduling algorithm + binding)"}, []string{"result", "profile"})
	decisionTimes = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "scheduler_scheduling_algorithm_duration_seconds", Buckets: attemptSeconds,
		Help: "Scheduling algorithm latency in seconds"})
	podTimes = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scheduler_pod_scheduling_sli_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
		Help: "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts."}, []string{"attempts"})
	podAttempts = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "scheduler_pod_scheduling_attempts", Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		Help: "Number of attempts to successfully schedule a pod."})
	preemptions = prometheus.NewCounter(prometheus.CounterOpts{Name: "scheduler_preemption_attempts_total", Help: "Total preemption attempts in the cluster till now"})
	incoming    = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_queue_incoming_pods_total",
		Help: "Number of pods added to scheduling queues by event and queue type."}, []string{"queue", "event"})
	extensionTimes = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scheduler_framework_extension_point_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 12),
		Help: "Latency for running all plugins of a specific extension point."}, []string{"extension_point", "status", "profile"})
	victimCount = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "scheduler_preemption_victims", Buckets: prometheus.ExponentialBuckets(1, 2, 7),
		Help: "Number of selected preemption victims"})
)

// Collectors are what a registry takes.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{scheduleAttempts, attemptTimes, decisionTimes, podTimes, podAttempts, preemptions, victimCount, incoming, extensionTimes, &pending}
}

// Results of an attempt.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

// attempted notes what came of an attempt that began at since.
func attempted(pod *corev1.Pod, result string, since time.Time) {
	scheduleAttempts.WithLabelValues(result, pod.Spec.SchedulerName).Inc()
	attemptTimes.WithLabelValues(result, pod.Spec.SchedulerName).Observe(time.Since(since).Seconds())
}

// bound notes a pod that has its node.
func (c *cycle) bound() {
	attempted(c.pod, resultScheduled, c.began)
	podAttempts.Observe(float64(c.attempts))
	podTimes.WithLabelValues(strconv.Itoa(min(c.attempts, mostAttempts))).Observe(time.Since(c.since).Seconds())
}

// Statuses of an extension point, as upstream calls them.
const (
	statusSuccess       = "Success"
	statusUnschedulable = "Unschedulable"
	statusError         = "Error"
)

// stopwatch measures the extension points of an attempt, one after the other.
type stopwatch struct {
	profile string
	since   time.Time
}

// lap notes the time since the last lap as that of an extension point.
func (w *stopwatch) lap(point, status string) {
	now := time.Now()
	extensionTimes.WithLabelValues(point, status, w.profile).Observe(now.Sub(w.since).Seconds())
	w.since = now
}

// outcomeOf is the status of an extension point that is over, from what it may have ended with.
func outcomeOf(err error) string {
	if err != nil {
		return statusError
	}
	return statusSuccess
}

// status is that of the decision's last extension point.
func (d *Decision) status() string {
	if d.Err == nil && d.Whole != nil {
		return statusUnschedulable
	}
	return outcomeOf(d.Err)
}

// mostAttempts bounds the values of a label.
const mostAttempts = 16

// pendingPods asks the schedulers that run how many pods wait, when somebody wants to know.
type pendingPods struct {
	mu sync.Mutex
	of map[*Scheduler]struct{}
}

var (
	pending pendingPods

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

// answerWithin bounds the wait for a scheduler that is busy, or ends.
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

// sizes are how many pods are where, and what is known of the cluster.
type sizes struct {
	places               [inFlight + 1]int
	refused              map[refusal]int
	gated                int
	nodes, pods, assumed int
}

// refusal is by which plugin of which profile a pod was refused.
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

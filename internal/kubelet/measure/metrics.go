package measure

import (
	"net/http"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/zpages"
)

// Metrics are the metrics of one node agent. It is safe for concurrent use.
type Metrics struct {
	main, probes *prometheus.Registry

	operations, operationErrors           *prometheus.CounterVec
	operationSeconds                      *prometheus.HistogramVec
	relist, relistInterval                prometheus.Histogram
	relisted                              prometheus.Gauge
	workerSeconds, cgroupSeconds, storage *prometheus.HistogramVec
	podStart, podStartTotal, statusSync   prometheus.Histogram
	startedPods, startedPodErrors         prometheus.Counter
	mappedPods, mappedPodErrors           prometheus.Counter // with user namespaces
	startedContainers, containerErrors    *prometheus.CounterVec
	evictions, preemptions                *prometheus.CounterVec
	requests                              *prometheus.CounterVec
	requestSeconds                        *prometheus.HistogramVec
	requestsNow                           *prometheus.GaugeVec
	probeTotal                            *prometheus.CounterVec
	probeSeconds                          *prometheus.HistogramVec
	sandboxSeconds, pullSeconds           *prometheus.HistogramVec
	sandboxErrors, rejections             *prometheus.CounterVec
}

// New makes the metrics of a node.
func New(nodeName string) *Metrics {
	m := &Metrics{main: prometheus.NewRegistry(), probes: prometheus.NewRegistry()}
	m.runtime()
	m.pods()
	m.server()
	name := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_node_name", Help: "[ALPHA] The node's name. The count is always 1."}, []string{"node"})
	name.WithLabelValues(nodeName).Set(1)
	m.main.MustRegister(name)
	m.main.MustRegister(zpages.Collectors()...)
	m.Gauge("kubelet_cgroup_version", "[ALPHA] cgroup version on the hosts.", func() float64 {
		if cgroups.IsCgroup2UnifiedMode() {
			return 2
		}
		return 1
	})
	m.Gauge("kubelet_node_config_error", "[ALPHA] 1 if the node is experiencing a configuration-related error. A node agent with an invalid configuration does not start.", func() float64 { return 0 })
	return m
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.main.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.main.MustRegister(v)
	return v
}

// Gauge adds a gauge whose value is read when it is scraped.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.main.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Add adds further collectors.
func (m *Metrics) Add(c ...prometheus.Collector) { m.main.MustRegister(c...) }

// podBuckets are upstream's for the start of pods, in seconds.
var podBuckets = []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}

// pullBuckets are upstream's for pulls of images, in seconds.
var pullBuckets = []float64{1, 5, 10, 20, 30, 60, 180, 360, 480, 600, 900, 1200, 1800, 2700, 3600}

func (m *Metrics) runtime() {
	m.operations = m.counter("kubelet_runtime_operations_total", "[ALPHA] Cumulative number of runtime operations by operation type.", "operation_type")
	m.operationErrors = m.counter("kubelet_runtime_operations_errors_total", "[ALPHA] Cumulative number of runtime operation errors by operation type.", "operation_type")
	m.operationSeconds = m.histogram("kubelet_runtime_operations_duration_seconds", "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
		prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type")
	m.sandboxSeconds = m.histogram("kubelet_run_podsandbox_duration_seconds", "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.", prometheus.DefBuckets, "runtime_handler")
	m.sandboxErrors = m.counter("kubelet_run_podsandbox_errors_total", "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.", "runtime_handler")
	m.pullSeconds = m.histogram("kubelet_image_pull_duration_seconds", "[ALPHA] Duration in seconds to pull an image.", pullBuckets, "image_size_in_bytes")
	m.relist = m.histogram("kubelet_pleg_relist_duration_seconds", "[ALPHA] Duration in seconds for relisting pods in PLEG.", prometheus.DefBuckets).WithLabelValues().(prometheus.Histogram)
	m.relistInterval = m.histogram("kubelet_pleg_relist_interval_seconds", "[ALPHA] Interval in seconds between relisting in PLEG.", prometheus.DefBuckets).WithLabelValues().(prometheus.Histogram)
	m.relisted = prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_pleg_last_seen_seconds", Help: "[ALPHA] Timestamp in seconds when PLEG was last seen active."})
	m.main.MustRegister(m.relisted)
	m.cgroupSeconds = m.histogram("kubelet_cgroup_manager_duration_seconds", "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.", prometheus.DefBuckets, "operation_type")
}

func (m *Metrics) pods() {
	m.workerSeconds = m.histogram("kubelet_pod_worker_duration_seconds", "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync", prometheus.DefBuckets, "operation_type")
	m.podStart = m.histogram("kubelet_pod_start_duration_seconds", "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", podBuckets).WithLabelValues().(prometheus.Histogram)
	m.podStartTotal = m.histogram("kubelet_pod_start_total_duration_seconds",
		"[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
		podBuckets).WithLabelValues().(prometheus.Histogram)
	m.statusSync = m.histogram("kubelet_pod_status_sync_duration_seconds",
		"[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intervening changes to pod status occur.",
		[]float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60}).WithLabelValues().(prometheus.Histogram)
	m.startedPods = m.counter("kubelet_started_pods_total", "[ALPHA] Cumulative number of pods started").WithLabelValues()
	m.startedPodErrors = m.counter("kubelet_started_pods_errors_total", "[ALPHA] Cumulative number of errors when starting pods").WithLabelValues()
	m.mappedPods = m.counter("kubelet_started_user_namespaced_pods_total", "[ALPHA] Cumulative number of pods with user namespaces started").WithLabelValues()
	m.mappedPodErrors = m.counter("kubelet_started_user_namespaced_pods_errors_total", "[ALPHA] Cumulative number of errors when starting pods with user namespaces").WithLabelValues()
	m.startedContainers = m.counter("kubelet_started_containers_total", "[ALPHA] Cumulative number of containers started", "container_type")
	m.containerErrors = m.counter("kubelet_started_containers_errors_total", "[ALPHA] Cumulative number of errors when starting containers", "container_type", "code")
	m.rejections = m.counter("kubelet_admission_rejections_total", "[ALPHA] Cumulative number pod admission rejections by the Kubelet.", "reason")
	m.evictions = m.counter("kubelet_evictions", "[ALPHA] Cumulative number of pod evictions by eviction signal", "eviction_signal")
	m.preemptions = m.counter("kubelet_preemptions", "[ALPHA] Cumulative number of pod preemptions by preemption resource", "preemption_signal")
	m.storage = m.histogram("storage_operation_duration_seconds", "[ALPHA] Storage operation duration",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}, "volume_plugin", "operation_name", "status", "migrated")
	m.probeTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "prober_probe_total", Help: "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
	}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"})
	m.probeSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "prober_probe_duration_seconds", Help: "[ALPHA] Duration in seconds for a probe response.", Buckets: prometheus.DefBuckets,
	}, []string{"probe_type", "container", "pod", "namespace"})
	m.probes.MustRegister(m.probeTotal, m.probeSeconds)
}

// Handler serves /metrics.
func (m *Metrics) Handler() http.Handler { return promhttp.HandlerFor(m.main, promhttp.HandlerOpts{}) }

// ProbeHandler serves /metrics/probes.
func (m *Metrics) ProbeHandler() http.Handler {
	return promhttp.HandlerFor(m.probes, promhttp.HandlerOpts{})
}

// Relisted measures one listing of the runtime's pods. since is the time since the one before, or 0
// for the first.
func (m *Metrics) Relisted(took, since time.Duration) {
	m.relist.Observe(took.Seconds())
	if since > 0 {
		m.relistInterval.Observe(since.Seconds())
	}
	m.relisted.Set(float64(time.Now().UnixNano()) / 1e9)
}

// Stepped measures one step of a pod's worker: "create", "sync" or "kill".
func (m *Metrics) Stepped(operation string, took time.Duration) {
	m.workerSeconds.WithLabelValues(operation).Observe(took.Seconds())
}

// PodMade counts a sandbox that was made, or could not be. mapped reports whether the pod has a
// user namespace of its own.
func (m *Metrics) PodMade(mapped bool, err error) {
	m.startedPods.Inc()
	if mapped {
		m.mappedPods.Inc()
	}
	if err == nil {
		return
	}
	m.startedPodErrors.Inc()
	if mapped {
		m.mappedPodErrors.Inc()
	}
}

// PodRunning measures the start of a pod, since the node agent saw it and since it was created.
func (m *Metrics) PodRunning(sinceSeen, sinceCreated time.Duration) {
	m.podStart.Observe(sinceSeen.Seconds())
	m.podStartTotal.Observe(sinceCreated.Seconds())
}

// StatusSynced measures the time from a change of a pod's status until the API has it.
func (m *Metrics) StatusSynced(took time.Duration) { m.statusSync.Observe(took.Seconds()) }

// ContainerStarted counts the start of a container. kind is "container", "init_container" or
// "ephemeral_container"; code is the reason of a failure, or "". As upstream, a failure also counts
// for the pod if it has a user namespace of its own (mapped).
func (m *Metrics) ContainerStarted(mapped bool, kind, code string) {
	m.startedContainers.WithLabelValues(kind).Inc()
	if code == "" {
		return
	}
	m.containerErrors.WithLabelValues(kind, code).Inc()
	if mapped {
		m.mappedPodErrors.Inc()
	}
}

// Cgroup measures an operation on a pod's cgroup.
func (m *Metrics) Cgroup(operation string, took time.Duration) {
	m.cgroupSeconds.WithLabelValues(operation).Observe(took.Seconds())
}

// Storage measures mounting or unmounting all volumes of a pod, once for each of the plugins.
func (m *Metrics) Storage(operation string, plugins []string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	for _, plugin := range plugins {
		m.storage.WithLabelValues(plugin, operation, status, "false").Observe(took.Seconds())
	}
}

// Rejected counts a pod that the node did not admit, by the reason.
func (m *Metrics) Rejected(reason string) { m.rejections.WithLabelValues(reason).Inc() }

// Evicted counts an eviction by its signal, such as "memory.available".
func (m *Metrics) Evicted(signal string) { m.evictions.WithLabelValues(signal).Inc() }

// Preempted counts a pod that ended for a critical one, by the resource that was missing.
func (m *Metrics) Preempted(resource string) { m.preemptions.WithLabelValues(resource).Inc() }

// Probed counts and times one probe.
func (m *Metrics) Probed(t probe.Target, kind probe.Kind, r probe.Result, took time.Duration) {
	result := map[probe.Result]string{probe.Success: "successful", probe.Warning: "successful", probe.Failure: "failed", probe.Unknown: "unknown"}[r]
	m.probeTotal.WithLabelValues(string(kind), result, t.Container.Name, t.Pod.Name, t.Pod.Namespace, string(t.Pod.UID)).Inc()
	m.probeSeconds.WithLabelValues(string(kind), t.Container.Name, t.Pod.Name, t.Pod.Namespace).Observe(took.Seconds())
}

// Forget drops the probes of a removed pod.
func (m *Metrics) Forget(pod types.NamespacedName, uid types.UID) {
	m.probeTotal.DeletePartialMatch(prometheus.Labels{"pod_uid": string(uid)})
	m.probeSeconds.DeletePartialMatch(prometheus.Labels{"pod": pod.Name, "namespace": pod.Namespace})
}

// Plugins lists the plugins of a pod's volumes under upstream's names. claim returns the plugin of
// a claim's volume, or "" if it is not known.
func Plugins(pod *corev1.Pod, claim func(volume string) string) (out []string) {
	for i := range pod.Spec.Volumes {
		if p := plugin(&pod.Spec.Volumes[i], claim); p != "" {
			out = append(out, p)
		}
	}
	return out
}

func plugin(v *corev1.Volume, claim func(string) string) string {
	switch {
	case v.EmptyDir != nil:
		return "kubernetes.io/empty-dir"
	case v.ConfigMap != nil:
		return "kubernetes.io/configmap"
	case v.Secret != nil:
		return "kubernetes.io/secret"
	case v.Projected != nil:
		return "kubernetes.io/projected"
	case v.DownwardAPI != nil:
		return "kubernetes.io/downward-api"
	case v.HostPath != nil:
		return "kubernetes.io/host-path"
	case v.Image != nil:
		return "kubernetes.io/image"
	case v.CSI != nil:
		return "kubernetes.io/csi"
	case v.NFS != nil:
		return "kubernetes.io/nfs"
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return claim(v.Name)
	}
	return ""
}

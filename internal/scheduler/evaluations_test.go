package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
)

func TestPluginsAreCountedWhereTheyTakePart(t *testing.T) {
	s := configured(t, "")
	s.cluster = newCluster(nil, nil)
	try := func(p *corev1.Pod) {
		s.onPod(nil, p, false, time.Now())
		s.scheduleOne(t.Context())
		s.writing.Wait()
	}
	check := func(what, plugin, point string, want float64) {
		t.Helper()
		if got := counted(t, s.metrics.evaluations.WithLabelValues(plugin, point, corev1.DefaultSchedulerName)); got != want {
			t.Errorf("%s: %s took part in %s %v times, want %v", what, plugin, point, got, want)
		}
	}
	s.cluster.setNode(node("a", "8"))
	try(pod("one", "1"))
	check("one node", "NodeResourcesFit", "PreFilter", 1)
	check("one node", "NodeResourcesFit", "Filter", 1)
	check("one node", "NodePorts", "PreFilter", 1)
	check("a pod without ports", "NodePorts", "Filter", 0)
	check("one node needs no score", "NodeResourcesFit", "Score", 0)
	s.cluster.setNode(node("b", "8"))
	try(pod("two", "1"))
	check("two nodes", "NodeResourcesFit", "Filter", 2)
	check("two nodes", "NodeResourcesFit", "Score", 1)
	check("two nodes", "PodTopologySpread", "PreScore", 1)
	check("a pod without constraints", "PodTopologySpread", "Score", 0)
}

// Dashboards and alerts for kube-scheduler read its stable and beta metrics.
func TestStableAndBetaMetricsHaveUpstreamsNames(t *testing.T) {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		for _, c := range NewMetrics().Collectors() {
			c.Describe(descs)
		}
	}()
	var known []string
	for d := range descs {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		known = append(known, name)
	}
	for _, name := range strings.Fields(`
		framework_extension_point_duration_seconds pending_pods pod_scheduling_attempts preemption_attempts_total preemption_victims
		queue_incoming_pods_total schedule_attempts_total scheduling_attempt_duration_seconds

		goroutines permit_wait_duration_seconds plugin_evaluation_total pod_scheduling_sli_duration_seconds unschedulable_pods`) {
		if !slices.Contains(known, "scheduler_"+name) {
			t.Errorf("scheduler_%s is missing", name)
		}
	}
}

// counted returns the value of a counter.
func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}

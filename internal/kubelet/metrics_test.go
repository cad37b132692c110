package kubelet

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/stats"
	"github.com/knarr-project/knarr/internal/volume"
)

func TestMetricsOfTheNodeAgent(t *testing.T) {
	b := newBench(t)
	p := b.create(pod("one"))
	b.await("one", "ready", ready)
	b.create(pod("two", never, func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }))
	b.await("two", "refused", phase(corev1.PodFailed))
	logs := filepath.Join(spec.LogDir(b.k.LogsDir, p), "main")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(logs, "0.log"), make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted := []string{
		`kubelet_node_name{node="node"} 1`, `kubelet_running_pods 1`, `kubelet_running_containers{container_state="running"} 1`,
		`kubelet_runtime_operations_total{operation_type="run_podsandbox"} [1-9]`, `kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""} [1-9]`,
		`kubelet_pod_status_sync_duration_seconds_count [1-9]`, `kubelet_pod_start_duration_seconds_count [1-9]`, `kubelet_pleg_relist_duration_seconds_count [1-9]`,
		`kubelet_admission_rejections_total{reason="PodOSNotSupported"} 1`, `rest_client_requests_total{code="200",host="[^"]*",method="PUT"} [1-9]`,
		`kubelet_container_log_filesystem_used_bytes{container="main",namespace="default",pod="one",uid="[^"]+"} [1-9]`,
	}
	// Logs are measured in the background.
	var text string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		w := httptest.NewRecorder()
		b.k.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		text = w.Body.String()
		missing := ""
		for _, line := range wanted {
			if !regexp.MustCompile("(?m)^" + line).MatchString(text) {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no line %s in\n%s", missing, text)
		}
	}
}

func TestVolumesOfClaimsHaveMetrics(t *testing.T) {
	bad := true
	usage := stats.ClaimUsage{Namespace: "ns", Usage: volume.Usage{Claim: "data", UsedBytes: 1, CapacityBytes: 10, Available: 9, Inodes: 7, InodesFree: 4, InodesUsed: 3, Abnormal: &bad}}
	v := newVolumeStats(nil)
	v.claims = func() []stats.ClaimUsage { // two pods use one claim
		return []stats.ClaimUsage{usage, usage, {Namespace: "ns", Usage: volume.Usage{Claim: "other"}}}
	}
	v.sizes = func() []stats.LogUsage { return nil }
	registry := prometheus.NewRegistry()
	registry.MustRegister(v)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Label[0].GetName() != "namespace" || m.Label[1].GetName() != "persistentvolumeclaim" {
				t.Errorf("%s has the labels %v", f.GetName(), m.Label)
			}
			got[f.GetName()+"/"+m.Label[1].GetValue()] = m.Gauge.GetValue()
		}
	}
	for name, want := range map[string]float64{
		"used_bytes": 1, "capacity_bytes": 10, "available_bytes": 9, "inodes": 7, "inodes_free": 4, "inodes_used": 3, "health_status_abnormal": 1,
	} {
		if value, ok := got["kubelet_volume_stats_"+name+"/data"]; !ok || value != want {
			t.Errorf("%s: %v %v, want %v", name, value, ok, want)
		}
	}
	if _, ok := got["kubelet_volume_stats_health_status_abnormal/other"]; ok {
		t.Error("a volume without a known condition has one")
	}
}

package etcd

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestJudgeDisk(t *testing.T) {
	for name, c := range map[string]struct {
		fast, slow, stuck int // writes of 1 ms, 200 ms and 2 s
		want              string
	}{
		"no writes":               {},
		"fast writes":             {fast: 1000},
		"a few slow writes":       {fast: 1000, slow: 9},
		"two slow writes of five": {fast: 3, slow: 2, want: "2 of 5 writes to its log waited longer than 128ms"},
		"many slow writes":        {fast: 900, slow: 50, want: "50 of 950 writes to its log waited longer than 128ms"},
		"one write of 2 s":        {fast: 5000, stuck: 1, want: "1 of 5001 writes to its log waited longer than 1.024s"},
	} {
		t.Run(name, func(t *testing.T) {
			h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)})
			state := func() *dto.Histogram {
				var m dto.Metric
				if err := h.Write(&m); err != nil {
					t.Fatal(err)
				}
				return m.GetHistogram()
			}
			h.Observe(4) // before the period
			before := state()
			for seconds, n := range map[float64]int{0.0009: c.fast, 0.2: c.slow, 2: c.stuck} {
				for range n {
					h.Observe(seconds)
				}
			}
			got, ok := judgeDisk(before, state())
			if ok != (c.want != "") {
				t.Fatalf("got %+v, %v", got, ok)
			}
			got.What, got.Folder, got.Device = "its log", "/d", Device{"/dev/sda1", "/", "ext4"}
			if ok && (!strings.Contains(got.String(), c.want) || !strings.Contains(got.String(), "/dev/sda1 (ext4, mounted on /), which holds /d")) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestMetricsOfTheEngine(t *testing.T) {
	e := openSmall(t, dataDir(t))
	if err := tryWrite(t, e, "/k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(e.Metrics()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*dto.Metric{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0]
	}
	if q := got["knarr_store_quota_bytes"].GetGauge().GetValue(); q != LeastQuota {
		t.Errorf("quota: %v", q)
	}
	for _, name := range []string{"knarr_store_used_bytes", "knarr_store_disk_free_bytes", "knarr_store_healthy"} {
		if got[name].GetGauge().GetValue() <= 0 {
			t.Errorf("%s: %v", name, got[name])
		}
	}
	if n := got[logSyncs].GetHistogram().GetSampleCount(); n == 0 {
		t.Errorf("%s is empty", logSyncs)
	}
	if got["etcd_mvcc_db_total_size_in_bytes"] == nil || got["knarr_store_writes_refused_total"] == nil || got["go_goroutines"] != nil {
		t.Errorf("metrics: %v", got)
	}
}

package eviction

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// bench evaluates measurements of memory in MiB, with one pod on the node.
type bench struct {
	m      *Manager
	now    time.Time
	graces []int64
}

func newBench(t *testing.T, hard, soft, grace, reclaim map[string]string) *bench {
	t.Helper()
	thresholds, err := Parse(hard, nil)
	if err != nil {
		t.Fatal(err)
	}
	more, err := Parse(soft, grace)
	if err != nil {
		t.Fatal(err)
	}
	thresholds = append(thresholds, more...)
	if err := SetReclaim(thresholds, reclaim); err != nil {
		t.Fatal(err)
	}
	b := &bench{now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	long := int64(60)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &long}}
	b.m = &Manager{
		Thresholds: thresholds, Transition: time.Minute, MaxGrace: 20, Pods: func() []*corev1.Pod { return []*corev1.Pod{pod} },
		Evict: func(_ *corev1.Pod, _ string, grace int64) { b.graces = append(b.graces, grace) },
		Now:   func() time.Time { return b.now }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return b
}

// measure passes a measurement after some time, and returns the number of evictions so far.
func (b *bench) measure(after time.Duration, available uint64) int {
	b.now = b.now.Add(after)
	available <<= 20
	used := uint64(1000)<<20 - available
	b.m.Evaluate(context.Background(), &statsapi.Summary{Node: statsapi.NodeStats{Memory: &statsapi.MemoryStats{AvailableBytes: &available, WorkingSetBytes: &used}}})
	return len(b.graces)
}

func TestEvictionsGoOnUntilEnoughIsReclaimed(t *testing.T) {
	b := newBench(t, map[string]string{"memory.available": "100Mi"}, nil, nil, map[string]string{"memory.available": "50Mi"})
	for _, step := range []struct {
		available uint64
		evictions int
	}{{120, 0}, {90, 1}, {120, 2}, {149, 3}, {150, 3}, {120, 3}, {99, 4}} {
		if got := b.measure(10*time.Second, step.available); got != step.evictions {
			t.Errorf("at %d MiB %d pods were evicted, wanted %d", step.available, got, step.evictions)
		}
	}
}

func TestASoftThresholdWaitsAndLimitsTheGracePeriod(t *testing.T) {
	b := newBench(t, nil, map[string]string{"memory.available": "10%"}, map[string]string{"memory.available": "30s"}, nil)
	if b.measure(0, 90) != 0 || b.measure(29*time.Second, 90) != 0 {
		t.Error("a pod was evicted within the grace period")
	}
	if b.measure(time.Second, 90) != 1 || b.graces[0] != 20 {
		t.Errorf("grace periods of evicted pods are %v, wanted 20", b.graces)
	}
}

func TestAPressureLastsForTheTransitionPeriod(t *testing.T) {
	b := newBench(t, map[string]string{"memory.available": "100Mi"}, nil, nil, nil)
	b.measure(0, 90)
	if b.measure(59*time.Second, 500); !b.m.Pressure().Memory {
		t.Error("the pressure ended early")
	}
	if b.measure(time.Second, 500); b.m.Pressure().Memory {
		t.Error("the pressure did not end")
	}
}

func TestAThresholdOfZeroIsOff(t *testing.T) {
	for _, off := range []string{"0", "0%"} {
		if got, err := Parse(map[string]string{"memory.available": off}, nil); err != nil || len(got) != 0 {
			t.Errorf("%s is %v, %v", off, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory.available", "10%", "30s")
	f.Fuzz(func(t *testing.T, signal, amount, grace string) {
		list, err := Parse(map[string]string{signal: amount}, map[string]string{signal: grace})
		if err == nil && len(list) > 1 {
			t.Errorf("%d thresholds", len(list))
		}
	})
}

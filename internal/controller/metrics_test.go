package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestQueuesAreMeasured(t *testing.T) {
	const name = "test"
	registry, metrics := prometheus.NewRegistry(), NewQueueMetrics()
	registry.MustRegister(metrics.Collectors()...)
	value := func(family string) float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == family && m.GetLabel()[0].GetValue() == name {
					return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return -1
	}
	started, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	tries := 0
	w := NewWorkOf(Env{Queues: metrics}, name, func(context.Context, string) (Result, error) {
		if tries++; tries == 1 {
			close(started)
			<-goOn
			return Result{}, errors.New("once more")
		}
		if tries == 2 {
			return Result{After: time.Millisecond}, nil
		}
		close(done)
		return Result{}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx, 1) }()
	w.Add("a")
	<-started
	w.Add("a")
	if got := value("workqueue_unfinished_work_seconds"); got <= 0 {
		t.Errorf("unfinished work is %v", got)
	}
	close(goOn)
	<-done
	cancel()
	<-ended
	for family, want := range map[string]float64{
		// The queue no longer runs.
		"workqueue_retries_total": 2, "workqueue_work_duration_seconds": 3, "workqueue_depth": -1,
	} {
		if got := value(family); got != want {
			t.Errorf("%s is %v, want %v", family, got, want)
		}
	}
	if value("workqueue_adds_total") < 2 || value("workqueue_queue_duration_seconds") < 2 {
		t.Error("adds are not counted")
	}
}

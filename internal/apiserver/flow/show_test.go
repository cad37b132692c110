package flow

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/auth"
)

// sums returns a family's samples by their label values: the count and, for histograms, the sum.
func sums(t *testing.T, c prometheus.Collector, family string) map[string][2]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][2]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += l.GetValue() + " "
			}
			if f.GetName() == family {
				out[labels] = [2]float64{float64(m.GetHistogram().GetSampleCount()) + m.GetGauge().GetValue(), m.GetHistogram().GetSampleSum()}
			}
		}
	}
	return out
}

func TestWaitMetrics(t *testing.T) {
	g := newGate(time.Minute, 2)
	dev := &Request{User: auth.User{Name: "alice", Groups: []string{"dev"}}, Verb: "update", Resource: "pods"}
	first, err := g.Enter(t.Context(), dev, one)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := g.Enter(ctx, dev, one)
		left <- err
	}()
	const queued = "apiserver_current_inqueue_requests"
	for sums(t, g, queued)["mutating "][0] != 1 {
		time.Sleep(time.Millisecond)
	}
	if readers := sums(t, g, queued)["readOnly "][0]; readers != 0 {
		t.Errorf("%v readers wait", readers)
	}
	leave()
	if err := <-left; err != ErrTooMany {
		t.Error(err)
	}
	first.Done()
	waits := sums(t, g, "apiserver_flowcontrol_request_wait_duration_seconds")
	if at := waits["true dev work "]; at != [2]float64{1, 0} {
		t.Errorf("the request that found a seat at once is told as %v", at)
	}
	if gone := waits["false dev work "]; gone[0] != 1 || gone[1] <= 0 {
		t.Errorf("the request that left is told as %v", gone)
	}
	if company := sums(t, g, "apiserver_flowcontrol_request_queue_length_after_enqueue")["dev work "]; company != [2]float64{2, 2} {
		t.Errorf("both were alone in the queue: %v", company)
	}
	if n := sums(t, g, queued)["mutating "][0]; n != 0 {
		t.Errorf("%v requests wait", n)
	}
}

// Upstream's tests use the last series of a level. An unused series of watches there would mean
// that nothing was executed.
func TestSeriesAppearWithTheirFirstRequest(t *testing.T) {
	g := newGate(time.Minute, 2)
	families := []string{"request_execution_seconds", "work_estimated_seats", "request_wait_duration_seconds", "request_queue_length_after_enqueue"}
	for _, family := range families {
		if got := sums(t, g, "apiserver_flowcontrol_"+family); len(got) != 0 {
			t.Errorf("before there were requests %s tells %v", family, got)
		}
	}
	ticket, err := g.Enter(t.Context(), &Request{User: auth.User{Name: "alice", Groups: []string{"dev"}}, Verb: "update", Resource: "pods"}, one)
	if err != nil {
		t.Fatal(err)
	}
	ticket.Done()
	for _, family := range families {
		if got := sums(t, g, "apiserver_flowcontrol_"+family); len(got) != 1 {
			t.Errorf("of one request %s tells %v", family, got)
		}
	}
}

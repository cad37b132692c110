package main

import (
	"slices"
	"testing"
	"time"

	"github.com/knarr-project/knarr/test/compare/report"
)

func TestAnOutcomeCountsFromTheFirstCreateToTheLastBinding(t *testing.T) {
	const second = time.Second
	sent := []time.Duration{second, 2 * second, 2 * second, 3 * second}
	bound := []time.Duration{2 * second, 3 * second, 6 * second, 0}
	out := &outcome{}
	out.summarize(sent, bound)
	if want := 3.0 / 5; out.rate != want {
		t.Errorf("rate %v, want %v", out.rate, want)
	}
	if want := []time.Duration{second, second, 4 * second}; !slices.Equal(out.waits, want) {
		t.Errorf("waits %v, want %v", out.waits, want)
	}
}

func TestAnIntervalWithoutABindingCountsWithTheNext(t *testing.T) {
	done := []time.Duration{0, sampleInterval / 2, sampleInterval, 4 * sampleInterval}
	quarter := 1 / sampleInterval.Seconds()
	want := []float64{quarter / 3, quarter / 3, quarter / 3, 2 * quarter}
	got := sampleRates(done)
	if len(got) != len(want) {
		t.Fatalf("samples %v, want %v", got, want)
	}
	for i := range got {
		if d := got[i] - want[i]; d > 1e-9 || d < -1e-9 {
			t.Fatalf("samples %v, want %v", got, want)
		}
	}
}

func TestAWorkloadShorterThanAnIntervalIsOneSample(t *testing.T) {
	got := sampleRates([]time.Duration{0, sampleInterval / 4, sampleInterval / 2})
	if want := 2 / (sampleInterval / 2).Seconds(); len(got) != 1 || got[0] != want {
		t.Errorf("samples %v, want %v", got, want)
	}
	if got := sampleRates([]time.Duration{sampleInterval}); len(got) != 0 {
		t.Errorf("samples of one binding: %v", got)
	}
}

func TestPercentilesAreValuesOfTheList(t *testing.T) {
	values := []int{1, 2, 3, 4}
	for percent, want := range map[int]int{1: 1, 50: 2, 51: 3, 99: 4, 100: 4} {
		if got := percentile(values, percent); got != want {
			t.Errorf("%d %%: %d, want %d", percent, got, want)
		}
	}
	if got := percentile([]int(nil), 50); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

func TestABindingIsCountedOnce(t *testing.T) {
	b := newBindings()
	g := b.group("a-b", 2)
	for _, name := range []string{"a-b-000000", "a-b-000000", "a-b-000009", "other-000001", "a-b-x", "x"} {
		b.mark(name)
	}
	if _, _, left := b.times(g); left != 1 {
		t.Fatalf("%d left, want 1", left)
	}
	b.mark(g.podName(1))
	select {
	case <-g.all:
	default:
		t.Error("not all are bound")
	}
}

func TestEachWorkloadIsNamedOnceMeasuredOnceAndDrawn(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range workloads {
		if seen[w.name] {
			t.Errorf("%s: two workloads have this name", w.name)
		}
		seen[w.name] = true
		if !slices.Contains(report.Scheduler[0].Keys, w.name) {
			t.Errorf("%s: not in the plot", w.name)
		}
		measured := 0
		for _, s := range w.steps {
			switch s := s.(type) {
			case createPods:
				if s.measured {
					measured++
				}
			case unblock:
				measured++
			}
		}
		if measured != 1 {
			t.Errorf("%s: %d measured steps, want 1", w.name, measured)
		}
	}
}

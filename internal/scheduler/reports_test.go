package scheduler

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var reportsBegan = time.Unix(1_800_000_000, 0)

func (r *reports) add(t *testing.T, of types.UID, status map[string]any) {
	r.put(&report{ctx: t.Context(), of: of, status: status, since: reportsBegan})
}

func (r *reports) next(busy bool, after time.Duration) string {
	report := r.take(busy, reportsBegan.Add(after))
	if report == nil {
		return ""
	}
	defer r.wrote(report)
	return fmt.Sprint(report.of, report.status)
}

func (r *reports) waits(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[uid] != nil
}

func TestAWaitingReportTakesInNewerOnesOfItsPod(t *testing.T) {
	var r reports
	r.add(t, "p", map[string]any{"conditions": 1, "nominatedNodeName": "a"})
	running := r.take(false, reportsBegan)
	if !r.pending("p") || r.pending("q") {
		t.Fatal("a report that is being written must be pending, others not")
	}
	r.add(t, "p", map[string]any{"conditions": 2, "nominatedNodeName": nil})
	r.add(t, "q", map[string]any{"conditions": 7})
	r.add(t, "p", map[string]any{"conditions": 3})
	if got := r.next(false, 0); got != "qmap[conditions:7]" {
		t.Errorf("beside the write of p: %s", got)
	}
	if got := r.next(false, 0); got != "" {
		t.Errorf("a second write of p begins: %s", got)
	}
	r.wrote(running)
	if got := r.next(false, 0); got != "pmap[conditions:3 nominatedNodeName:<nil>]" {
		t.Errorf("after the first write of p: %s", got)
	}
	if r.pending("p") {
		t.Error("all is written, but p is pending")
	}
}

func TestBindingsDelayReportsForSomeTime(t *testing.T) {
	var r reports
	r.add(t, "p", map[string]any{"conditions": 1})
	if r.hire(true, reportsBegan.Add(reportDelay-1)) {
		t.Error("it does not wait for the bindings")
	}
	if !r.hire(true, reportsBegan.Add(reportDelay)) {
		t.Error("it waits for too long")
	}
	if !r.hire(false, reportsBegan) {
		t.Error("it waits without bindings")
	}
	if got := r.next(true, reportDelay); got != "pmap[conditions:1]" {
		t.Error(got)
	}
	if r.hire(false, reportsBegan) {
		t.Error("nothing is left to write")
	}
}

func TestABindingMakesReportsObsolete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reports
		r.settle(t.Context(), "p")
		r.add(t, "p", map[string]any{"conditions": 1})
		running := r.take(false, reportsBegan)
		r.add(t, "p", map[string]any{"conditions": 2})
		settled := make(chan struct{})
		go func() {
			defer close(settled)
			r.settle(t.Context(), "p")
		}()
		synctest.Wait()
		select {
		case <-settled:
			t.Fatal("the binding does not wait for the running write")
		default:
		}
		r.wrote(running)
		<-settled
		if r.hire(false, reportsBegan) || r.pending("p") {
			t.Error("the second report is still to be written")
		}

		r.add(t, "p", map[string]any{"conditions": 3})
		if report := r.take(false, reportsBegan); !reflect.DeepEqual(report.status, map[string]any{"conditions": 3}) {
			t.Errorf("a later report: %v", report.status)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.settle(ctx, "p") // must not hang
	})
}

package spans

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func at(ms int) time.Time { return time.Unix(1900000000, 0).Add(time.Duration(ms) * time.Millisecond) }

func step(uid string, ms int) Span {
	return Span{Name: Start, Namespace: "shop", Object: "web", UID: uid, Container: "store", Begin: at(ms), End: at(ms + 1)}
}

func TestARingKeepsTheNewestSpans(t *testing.T) {
	r := &Ring{}
	for i := range 10 * maxSteps {
		r.Note(step(fmt.Sprint("uid-", i%7), i))
		if i%10 == 0 {
			r.Note(Span{Name: Rules, Namespace: "shop", Object: "web-x", Revisions: []int64{int64(i)}, Begin: at(i), End: at(i)})
		}
	}
	if n := len(r.steps.list) - r.steps.first; n != maxSteps {
		t.Errorf("%d steps", n)
	}
	found, dropped := r.Select([]string{"uid-3"}, []string{"shop/web-x", "other/x"})
	last := found[len(found)-1]
	if len(found) < maxSteps/7+maxRules || last.End.Before(at(10*maxSteps-10)) || dropped != 9*maxSteps+maxSteps-maxRules {
		t.Errorf("%d found, %d dropped, the last is %+v", len(found), dropped, last)
	}
	long := step("long", 0)
	long.Error = strings.Repeat("é", 10000)
	for range maxSteps {
		r.Note(long)
	}
	if r.steps.bytes > maxStepsBytes {
		t.Errorf("%d bytes", r.steps.bytes)
	}
}

func TestANilRingKeepsNothing(t *testing.T) {
	var r *Ring
	r.Note(step("a", 0))
	if found, _ := r.Select([]string{"a"}, nil); found != nil {
		t.Error(found)
	}
}

func TestARingIsUsedByManyAtOnce(t *testing.T) {
	r := &Ring{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 3000 {
				r.Note(step("a", i))
				if i%100 == 0 {
					r.Select([]string{"a"}, nil)
				}
			}
		})
	}
	all.Wait()
}

func TestTheHandlerAnswersWhatReadAnswerReads(t *testing.T) {
	r := &Ring{}
	r.Note(step("a", 0))
	r.Note(step("b", 1))
	ask := func(q string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest("GET", Path+"?"+q, nil))
		return w
	}
	a, err := ReadAnswer(ask(Query([]string{"b"}, nil).Encode()).Body)
	if err != nil || len(a.Spans) != 1 || a.Spans[0].UID != "b" || !a.Spans[0].End.Equal(at(2)) {
		t.Errorf("%+v %v", a, err)
	}
	if w := ask(Query(make([]string, MaxAsked+1), nil).Encode()); w.Code != 400 {
		t.Error(w.Code)
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(`{"spans":[{"name":"start","begin":"2030-01-01T00:00:00Z","end":"2030-01-01T00:00:01Z"}]}`)
	f.Add(`{"spans":[{"begin":"2030-01-01T00:00:01Z","end":"2030-01-01T00:00:00Z"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ReadAnswer(strings.NewReader(text))
		for _, s := range a.Spans {
			if err == nil && s.End.Before(s.Begin) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// BenchmarkNote reports the cost of a Span and the memory of a full Ring.
func BenchmarkNote(b *testing.B) {
	r := &Ring{}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r.Note(step("0f0c3a52-2f1e-4c0e-b3a5-0f2f6c1f7a10", i))
		i++
	}
	b.StopTimer()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	full := &Ring{}
	for i := range 2 * maxSteps {
		full.Note(step("0f0c3a52-2f1e-4c0e-b3a5-0f2f6c1f7a10", i))
		full.Note(Span{Name: Rules, Namespace: "shop", Object: "web", Revisions: []int64{int64(i)}, Begin: at(i), End: at(i)})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc), "bytes/ring")
	runtime.KeepAlive(full)
}

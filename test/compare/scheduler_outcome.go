package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// outcome is what a workload has given on one side.
type outcome struct {
	rate    float64         // pods a second, from the first create to the last binding
	rates   []float64       // samples of the rate, ascending
	waits   []time.Duration // from create to bound, ascending
	cpu     float64         // of the servers, for a pod, in ms
	spent   []spent         // by process
	loading float64         // CPU of the load, for a pod, in ms
	rss     float64         // of the servers at the end, in MB
	anon    float64         // RssAnon of the servers at the end, in MB
	note    string          // why there is no rate, or not of all pods
}

// spent is the CPU of one process for a pod, in ms.
type spent struct {
	name string
	cpu  float64
}

// sampleInterval is the length of a sample of the rate. It is shorter than scheduler_perf's second,
// since some workloads last no longer than that.
const sampleInterval = 250 * time.Millisecond

// summarize fills in the figures that follow from the times of creation and binding, both since a
// common beginning. A pod that is not bound has 0.
func (o *outcome) summarize(sent, bound []time.Duration) {
	var done []time.Duration
	var first time.Duration = 1<<63 - 1
	for i, at := range bound {
		if at > 0 {
			done = append(done, at)
			o.waits = append(o.waits, at-sent[i])
		}
		if sent[i] > 0 {
			first = min(first, sent[i])
		}
	}
	if len(done) == 0 {
		return
	}
	slices.Sort(done)
	slices.Sort(o.waits)
	o.rate = float64(len(done)) / (done[len(done)-1] - first).Seconds()
	o.rates = sampleRates(done)
}

// sampleRates returns the rates of all whole intervals after the first binding, ascending. As in
// scheduler_perf, an interval without a binding counts with the next one that has any. A workload
// that is shorter than an interval is one sample.
func sampleRates(done []time.Duration) []float64 {
	var rates []float64
	first, end := done[0], done[len(done)-1]
	last, counted, skipped := first, 1, 0
	for at := first + sampleInterval; at <= end; at += sampleInterval {
		now, _ := slices.BinarySearch(done, at+1)
		if now == counted {
			skipped++
			continue
		}
		rate := float64(now-counted) / (at - last).Seconds()
		for range skipped + 1 {
			rates = append(rates, rate)
		}
		last, counted, skipped = at, now, 0
	}
	if len(rates) == 0 && end > first {
		rates = append(rates, float64(len(done)-1)/(end-first).Seconds())
	}
	slices.Sort(rates)
	return rates
}

// percentile returns the smallest value that is at least as large as this percentage of all values.
func percentile[T any](sorted []T, percent int) (value T) {
	if len(sorted) == 0 {
		return value
	}
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}

func average(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

func (o *outcome) cell() string {
	switch {
	case o.rate == 0 && o.note == "":
		return "—"
	case o.rate == 0:
		return o.note
	case o.note != "":
		return number(o.rate) + " /s (" + o.note + ")"
	}
	return number(o.rate) + " /s"
}

func (o *outcome) samples() string {
	return fmt.Sprintf("%s, %s, %s, %s /s", number(average(o.rates)), number(percentile(o.rates, 50)), number(percentile(o.rates, 90)), number(percentile(o.rates, 99)))
}

func (o *outcome) latency() string {
	return fmt.Sprintf("%.0f, %.0f ms", ms(percentile(o.waits, 50)), ms(percentile(o.waits, 99)))
}

func (o *outcome) processors() string {
	var each []string
	for _, s := range o.spent {
		each = append(each, fmt.Sprintf("%s %.2f", strings.TrimPrefix(s.name, "kube-"), s.cpu))
	}
	detail := ""
	if len(each) > 1 {
		detail = " (" + strings.Join(each, ", ") + ")"
	}
	return fmt.Sprintf("%.2f ms%s, load %.2f ms", o.cpu, detail, o.loading)
}

// text is everything but the rate.
func (o *outcome) text() string {
	if o.rate == 0 {
		return o.note
	}
	text := fmt.Sprintf("samples %s; create to bound %s; CPU of a pod %s; RSS %.0f MB, RssAnon %.0f MB", o.samples(), o.latency(), o.processors(), o.rss, o.anon)
	if o.note != "" {
		text = o.note + "; " + text
	}
	return text
}

func (o *outcome) String() string {
	if o.rate == 0 {
		return o.cell()
	}
	return number(o.rate) + " pods/s; " + o.text()
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

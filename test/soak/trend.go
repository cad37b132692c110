package main

import "slices"

// sample is one measurement of a server. Its values are in the order of metrics.
type sample struct {
	minutes float64 // since the start of the soak
	values  []float64
}

// metric is a figure of a server. It may grow over the whole run by a share of its median plus an
// amount.
type metric struct {
	name, unit    string
	share, amount float64
}

var metrics = []metric{
	{"RSS", "MB", 0.15, 20},
	{"file handles", "", 0.10, 15},
	{"goroutines", "", 0.10, 50},
	{"database file", "MB", 0.25, 4},
	{"database in use", "MB", 0.25, 2},
	{"mounts", "", 0, 0.5},
}

// slope is the Theil–Sen estimator: the median of the slopes of all pairs of points. A quarter of
// the points may be anywhere without moving it far.
func slope(x, y []float64) float64 {
	var all []float64
	for i := range x {
		for j := i + 1; j < len(x); j++ {
			if x[j] != x[i] {
				all = append(all, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	return median(all)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// verdict is the trend of one metric of one server.
type verdict struct {
	metric         metric
	median, growth float64 // growth is the slope times the duration of the series
	flat           bool
}

// judge returns the trend of each metric in the samples after the warm-up. Fewer than ten samples
// prove nothing, and are not flat.
func judge(samples []sample, warm float64) []verdict {
	var out []verdict
	for i, m := range metrics {
		var x, y []float64
		for _, s := range samples {
			if s.minutes >= warm {
				x, y = append(x, s.minutes), append(y, s.values[i])
			}
		}
		v := verdict{metric: m, median: median(y)}
		if len(x) >= 10 {
			v.growth = slope(x, y) * (x[len(x)-1] - x[0])
			v.flat = v.growth <= m.share*v.median+m.amount
		}
		out = append(out, v)
	}
	return out
}

package main

import (
	"math"
	"testing"
)

func series(n int, value func(i int) float64) []sample {
	var all []sample
	for i := range n {
		s := sample{minutes: float64(i)}
		for range metrics {
			s.values = append(s.values, value(i))
		}
		all = append(all, s)
	}
	return all
}

func TestASlopeIgnoresSpikes(t *testing.T) {
	x, y := []float64{}, []float64{}
	for i := range 40 {
		x, y = append(x, float64(i)), append(y, 3*float64(i))
		if i%8 == 0 {
			y[i] += 1000
		}
	}
	if got := slope(x, y); math.Abs(got-3) > 0.5 {
		t.Errorf("the slope is %v, wanted about 3", got)
	}
}

func TestGrowthAfterTheWarmUpIsFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		value func(i int) float64
		flat  bool
	}{
		{"constant", func(int) float64 { return 100 }, true},
		{"growing in the warm-up alone", func(i int) float64 { return float64(min(i, 20)) * 10 }, true},
		{"sawtooth", func(i int) float64 { return 100 + float64(i%7) }, true},
		{"leaking", func(i int) float64 { return 100 + 2*float64(i) }, false},
		{"shrinking", func(i int) float64 { return 300 - float64(i) }, true},
	} {
		v := judge(series(80, c.value), 20)[0]
		if v.flat != c.flat {
			t.Errorf("%s: flat is %t with a growth of %.1f from %.1f", c.name, v.flat, v.growth, v.median)
		}
	}
	if judge(series(5, func(int) float64 { return 1 }), 0)[0].flat {
		t.Error("five samples were enough")
	}
}

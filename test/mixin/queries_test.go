package mixin

import "testing"

func TestQueriesAreParsed(t *testing.T) {
	queries, err := parse("# comment\n\nrecord a:b:<x,y> l=1: sum(m_<x,y>{KUBELET, k=~\"v\"}) > 0\nmaybe m: n\nnever o: p{a=\"[b]\"} [it is gone]\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) != 4 {
		t.Fatalf("%d queries", len(queries))
	}
	q := queries[1]
	if !q.record || q.name != "a:b:y" || q.labels[0] != [2]string{"l", "1"} || q.expression != `sum(m_y{job="kubelet", metrics_path="/metrics", k=~"v"}) > 0` {
		t.Errorf("%+v", q)
	}
	if q := queries[2]; !q.maybe || q.name != "m" || q.expression != "n" {
		t.Errorf("%+v", q)
	}
	if q := queries[3]; q.never != "it is gone" || q.expression != `p{a="[b]"}` {
		t.Errorf("%+v", q)
	}
	for _, bad := range []string{"never a: b", "no expression", "record a b: c"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is parsed", bad)
		}
	}
}

func TestQuantities(t *testing.T) {
	for text, want := range map[string]float64{"250m": .25, "64Mi": 64 << 20, "2": 2, "1k": 1000, "3938008Ki": 3938008 << 10} {
		if got, err := quantity(text); err != nil || got != want {
			t.Errorf("%s: %v %v, want %v", text, got, err, want)
		}
	}
}

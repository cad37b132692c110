package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/knarr-project/knarr/test/compare/report"
)

func TestARunKeepsItsFiguresAndPlots(t *testing.T) {
	dir := t.TempDir()
	o := &options{scale: 0.5, commit: "abc", release: "v1.36.3"}
	run := record(o, map[string]figures{
		"upstream": {"ready": {value: 2}},
		"knarr":    {"ready": {value: 0.3, note: "noted"}, "create": {note: "not survived"}},
	})
	if err := keep(run, dir); err != nil {
		t.Fatal(err)
	}
	got, err := report.Load(filepath.Join(dir, "figures.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Knarr != "abc" || got.Upstream != "v1.36.3" || got.Scale != 0.5 || len(got.Rows) != len(rows) {
		t.Errorf("the run is %+v", got)
	}
	first := report.Row{Key: "ready", What: rows[0].what, Unit: "s", Budget: 0.4, Upstream: report.Figure{Value: 2}, Knarr: report.Figure{Value: 0.3, Note: "noted"}}
	if got.Rows[0] != first {
		t.Errorf("the first row is %+v, want %+v", got.Rows[0], first)
	}
	for _, row := range got.Rows {
		if row.Key == "create" && (!row.More || row.Knarr.Note != "not survived") {
			t.Errorf("create is %+v", row)
		}
	}
	for _, plot := range report.Plots {
		if _, err := os.Stat(filepath.Join(dir, plot.Name+".svg")); err != nil {
			t.Error(err)
		}
	}
}

// A plot's key without a row would silently omit a bar.
func TestPlotsNameRowsOfTheTable(t *testing.T) {
	keys := map[string]bool{}
	for _, r := range rows {
		keys[r.key] = true
	}
	for _, plot := range append([]report.Plot{report.Several}, report.Plots...) {
		for _, key := range plot.Keys {
			if !keys[key] {
				t.Errorf("plot %s names %s, which is no row", plot.Name, key)
			}
		}
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/knarr-project/knarr/test/compare/report"
)

// record converts the results to the form of the documentation.
func record(o *options, results map[string]figures) *report.Run {
	run := &report.Run{Knarr: o.commit, Upstream: o.release, Machine: machine(), Scale: o.scale}
	of := func(side, key string) report.Figure {
		f := results[side][key]
		return report.Figure{Value: f.value, Note: f.note}
	}
	for _, r := range rows {
		run.Rows = append(run.Rows, report.Row{
			Key: r.key, What: r.what, Unit: r.unit, Budget: r.budget, More: r.better > 0,
			Upstream: of("upstream", r.key), Knarr: of("knarr", r.key),
		})
	}
	return run
}

// keep writes the run as figures.json and draws its plots into the same folder.
func keep(run *report.Run, dir string) error {
	if err := run.Save(filepath.Join(dir, "figures.json")); err != nil {
		return err
	}
	return run.Draw(dir)
}

func machine() string {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = []byte("unknown")
	}
	return fmt.Sprintf("%d CPUs, Linux %s, %s", runtime.NumCPU(), strings.TrimSpace(string(kernel)), runtime.GOARCH)
}

// Plots redraws the plots and tables of docs/internals: those of performance.md from
// measurements/last.json, the plot of three servers from several-servers.json, and those of
// scheduler-workloads.md from scheduler.json. Its argument is the folder docs/internals. `make
// plots` runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/knarr-project/knarr/test/compare/report"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "plots: want one argument: the folder docs/internals")
		os.Exit(2)
	}
	if err := draw(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func draw(dir string) error {
	measurements, page := filepath.Join(dir, "measurements"), filepath.Join(dir, "performance.md")
	run, err := report.Load(filepath.Join(measurements, "last.json"))
	if err != nil {
		return err
	}
	if err := run.Draw(measurements); err != nil {
		return err
	}
	several, err := report.Load(filepath.Join(measurements, "several-servers.json"))
	if err != nil {
		return err
	}
	name := filepath.Join(measurements, report.Several.Name+".svg")
	if err := os.WriteFile(name, []byte(report.Several.SVG(several)), 0o644); err != nil {
		return err
	}
	if err := insert(run, page, "last.json"); err != nil {
		return err
	}
	return drawWorkloads(dir)
}

// drawWorkloads redraws the page of the scheduler's workloads.
func drawWorkloads(dir string) error {
	const file = "scheduler.json"
	run, err := report.Load(filepath.Join(dir, "measurements", file))
	if err != nil {
		return err
	}
	for _, plot := range report.Scheduler {
		if err := os.WriteFile(filepath.Join(dir, "measurements", plot.Name+".svg"), []byte(plot.SVG(run)), 0o644); err != nil {
			return err
		}
	}
	return insert(run, filepath.Join(dir, "scheduler-workloads.md"), file)
}

// insert replaces the table of a page.
func insert(run *report.Run, page, file string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	changed, err := run.Insert(string(text), file)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(changed), 0o644)
}

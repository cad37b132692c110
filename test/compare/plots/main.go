// Plots redraws docs/internals/performance.md: the three plots and the table, from
// measurements/last.json beside them, and the plot of three servers, from several-servers.json. Its
// argument is the folder docs/internals. `make plots` runs it.
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
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	changed, err := run.Insert(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(changed), 0o644)
}

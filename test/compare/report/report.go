// Package report turns the figures of one comparison into documentation: a table in Markdown and
// plots in SVG.
//
// The comparison writes a Run as JSON. A Run is complete: it names its rows, their units and their
// budgets, so that documentation can be drawn from the file alone. The package uses the standard
// library only.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Run is the result of one comparison.
type Run struct {
	Knarr    string  // version or commit of knarr
	Upstream string  // version of upstream's Kubernetes
	Machine  string  // processors and kernel
	Scale    float64 // part of the full load; 1 is the full load
	Rows     []Row
}

// Row is one measurement on both sides.
type Row struct {
	Key    string // stable name; plots choose their rows by it
	What   string
	Unit   string
	Budget float64 // 0 if there is none
	More   bool    // more is better; otherwise less is better

	Upstream, Knarr Figure
}

// Figure is one side's result. A Value of 0 means that nothing was measured; the Note then has the
// reason.
type Figure struct {
	Value float64
	Note  string `json:",omitempty"`
}

// Load reads a Run from a JSON file.
func Load(path string) (*Run, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var run Run
	if err := json.Unmarshal(raw, &run); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &run, nil
}

// Save writes the Run as indented JSON.
func (r *Run) Save(path string) error {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}

// Held reports whether knarr's figure is within the budget. A missing figure is not.
func (r Row) Held() bool {
	if r.More {
		return r.Knarr.Value >= r.Budget
	}
	return r.Knarr.Value > 0 && r.Knarr.Value <= r.Budget
}

// Ratio returns knarr's figure relative to upstream's: "3.6 ×" means 3.6 times as much, "1/9.9"
// that fraction. It is empty unless both were measured.
func (r Row) Ratio() string {
	switch u, k := r.Upstream.Value, r.Knarr.Value; {
	case u <= 0 || k <= 0:
		return ""
	case k >= u:
		return fmt.Sprintf("%.1f ×", k/u)
	default:
		return fmt.Sprintf("1/%.1f", u/k)
	}
}

// Table returns the documentation's table: without notes, and with "missed" for a missed budget.
func (r *Run) Table() string {
	var b strings.Builder
	b.WriteString("| what | upstream | knarr | ratio | budget |\n|---|---:|---:|---:|---|\n")
	for _, row := range r.Rows {
		budget := quantity(row.Budget, row.Unit) + ", held"
		switch {
		case row.Budget == 0:
			budget = "—"
		case !row.Held():
			budget = quantity(row.Budget, row.Unit) + ", **missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.What, quantity(row.Upstream.Value, row.Unit), quantity(row.Knarr.Value, row.Unit), row.Ratio(), budget)
	}
	return b.String()
}

// quantity formats a value with its unit, to about three digits: "1,038,434 /s", "0.35 s". A value
// of 0 becomes a dash.
func quantity(v float64, unit string) string {
	switch {
	case v == 0:
		return "—"
	case v >= 100:
		return thousands(int64(v+0.5)) + " " + unit
	case v >= 10:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

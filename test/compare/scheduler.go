package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/knarr-project/knarr/test/compare/report"
)

// compareScheduler runs workloads of upstream's scheduler_perf over the API: each on both sides,
// one right after the other, each on a control plane of its own on an empty folder. All
// controllers run on both sides, as in a cluster.
func compareScheduler(ctx context.Context, o *options) error {
	chosen, err := chooseWorkloads(o.workloads)
	if o.nodes != "" {
		chosen, err = growth(o.nodes)
	}
	if err != nil {
		return err
	}
	var runs []*workloadRun
	var failures []error
	for i, w := range chosen {
		run := &workloadRun{workload: w, of: map[string]*outcome{}}
		runs = append(runs, run)
		for _, s := range o.schedulingSides() {
			progress("%s: %s, workload %d of %d", s.name(), w.name, i+1, len(chosen))
			out, err := o.runWorkload(ctx, s, w, o.scale)
			if err != nil {
				err = fmt.Errorf("%s: %s: %w", s.name(), w.name, err)
				progress("%v", err)
				failures = append(failures, err)
			}
			run.of[s.name()] = out
			progress("%s: %s: %s", s.name(), w.name, out)
			sweep()
			if ctx.Err() != nil {
				return errors.Join(append(failures, ctx.Err())...)
			}
		}
		// A run that is cut short leaves the figures of the finished workloads.
		failures = append(failures, o.keepRuns(runs))
	}
	table := renderRuns(runs)
	fmt.Print(table)
	return errors.Join(failures...)
}

// schedulingSides are the sides to measure. They have addresses for 65,536 nodes, and do not wait
// for heartbeats of nodes without an agent.
func (o *options) schedulingSides() []side {
	const pods = "11.0.0.0/8"
	const patient = "--node-monitor-grace-period=2h"
	var sides []side
	if o.only != ours {
		sides = append(sides, &upstream{bin: o.upstream, knarr: o.knarr, cgroup: "/" + o.cgroup + "-upstream",
			controllers: []string{"--cluster-cidr=" + pods, patient}})
	}
	if o.only != theirs {
		sides = append(sides, &knarr{bin: o.knarr, cgroup: "/" + o.cgroup + "-knarr", pods: pods, extra: []string{patient}})
	}
	return sides
}

func chooseWorkloads(names string) ([]workload, error) {
	if names == "" {
		return workloads, nil
	}
	var chosen []workload
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
		if i < 0 {
			var all []string
			for _, w := range workloads {
				all = append(all, w.name)
			}
			return nil, fmt.Errorf("workloads: %q is unknown; there are %s", name, strings.Join(all, ", "))
		}
		chosen = append(chosen, workloads[i])
	}
	return chosen, nil
}

// workloadRun is a workload with its outcome on each side.
type workloadRun struct {
	workload
	of map[string]*outcome
}

// workloadLimit is the longest time of a workload on one side.
const workloadLimit = 10 * time.Minute

// runWorkload runs a workload on a side. The outcome is never nil.
func (o *options) runWorkload(ctx context.Context, s side, w workload, scale float64) (*outcome, error) {
	out := &outcome{}
	c, err := begin(ctx, o, s.name()+"-"+w.name, s.startControl)
	if err != nil {
		out.note = "not started: " + err.Error()
		return out, err
	}
	defer c.stop()
	load, err := loadOn(ctx, c)
	if err != nil {
		out.note = "not started: " + err.Error()
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, workloadLimit)
	defer cancel()
	st := &stage{clients: load, o: o, side: s.name(), workload: w.name, scale: scale, control: c.control, bindings: newBindings(), out: out}
	err = st.run(ctx, w.steps)
	if err != nil && out.note == "" {
		out.note = "failed: " + err.Error()
	}
	return out, err
}

// keepRuns writes the table, figures.json and the plots.
func (o *options) keepRuns(runs []*workloadRun) error {
	var failures []error
	if o.out != "" {
		failures = append(failures, os.WriteFile(o.out, []byte(renderRuns(runs)), 0o644))
	}
	if o.figures != "" {
		failures = append(failures, os.MkdirAll(o.figures, 0o755), keepPlots(o.recordRuns(runs), o.figures))
	}
	return errors.Join(failures...)
}

func keepPlots(run *report.Run, dir string) error {
	if err := run.Save(filepath.Join(dir, "figures.json")); err != nil {
		return err
	}
	for _, plot := range report.Scheduler {
		if err := os.WriteFile(filepath.Join(dir, plot.Name+".svg"), []byte(plot.SVG(run)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// recordRuns converts the outcomes to the form of the documentation. The budget of a rate is the
// target times upstream's rate.
func (o *options) recordRuns(runs []*workloadRun) *report.Run {
	run := &report.Run{Knarr: o.commit, Upstream: o.release, Machine: machine(), Scale: o.scale}
	for _, r := range runs {
		up, own := r.outcome(theirs), r.outcome(ours)
		run.Rows = append(run.Rows,
			report.Row{
				Key: r.name, What: r.what, Unit: "/s", More: true, Budget: r.target * up.rate,
				Upstream: report.Figure{Value: up.rate, Note: up.text()}, Knarr: report.Figure{Value: own.rate, Note: own.text()},
			},
			report.Row{
				Key: r.name + report.CPU, What: r.what + ": CPU of a pod", Unit: "ms",
				Upstream: report.Figure{Value: up.cpu}, Knarr: report.Figure{Value: own.cpu},
			})
	}
	return run
}

func (r *workloadRun) outcome(side string) *outcome {
	if out := r.of[side]; out != nil {
		return out
	}
	return &outcome{}
}

// renderRuns returns the tables of the outcomes: rates with targets, then details.
func renderRuns(runs []*workloadRun) string {
	var b strings.Builder
	b.WriteString("| workload | upstream | knarr | ratio | target | held |\n|---|---:|---:|---:|---:|---|\n")
	for _, r := range runs {
		up, own := r.outcome(theirs), r.outcome(ours)
		ratio, target, held := "", "—", ""
		if r.target > 0 {
			target = fmt.Sprintf("≥ %.0f ×", r.target)
		}
		if up.rate > 0 && own.rate > 0 {
			ratio = fmt.Sprintf("%.1f ×", own.rate/up.rate)
			if r.target > 0 {
				held = map[bool]string{true: "yes", false: "no"}[own.rate >= r.target*up.rate]
			}
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %s | %s |\n", r.name, r.what, up.cell(), own.cell(), ratio, target, held)
	}
	b.WriteString("\n| workload | side | samples: average, p50, p90, p99 | create to bound: p50, p99 | CPU of a pod | RSS |\n|---|---|---|---|---|---:|\n")
	for _, r := range runs {
		for _, side := range []string{theirs, ours} {
			if out := r.of[side]; out != nil && out.rate > 0 {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.0f MB |\n", r.name, side, out.samples(), out.latency(), out.processors(), out.rss)
			}
		}
	}
	return b.String()
}

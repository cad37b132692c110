package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Interchange proves that parts of upstream's Kubernetes and of knarr can replace each other. Each
// layout is a cluster with parts of both, and the same workloads must work on all of them.
// Complaints are compared with those of the layout that has only upstream's parts.

// layouts lists the layouts in the order of their runs. The first one is the reference.
var layouts = []layout{
	{name: "reference", api: theirs, controllers: theirs, scheduler: theirs, node: theirs},
	{name: "their-parts", api: ours, controllers: theirs, scheduler: theirs, node: theirs},
	{name: "our-parts", api: theirs, controllers: ours, scheduler: ours, node: ours},
	{name: "our-controllers", api: theirs, controllers: ours, scheduler: theirs, node: theirs},
	{name: "our-scheduler", api: theirs, controllers: theirs, scheduler: ours, node: theirs},
	{name: "our-node", api: theirs, controllers: theirs, scheduler: theirs, node: ours},
}

// storeLayout is the name of the run that has no layout: it hands a store from one side to the
// other.
const storeLayout = "store"

// result is a line of the table.
type result struct {
	layout, what string
	err          error // nil: it held; unjudged: there is no reference
}

// unjudged is the reason why a line is neither held nor failed.
type unjudged string

func (u unjudged) Error() string { return string(u) }

func interchange(ctx context.Context, o *options) error {
	chosen, err := chosenLayouts(o.layouts)
	if err != nil {
		return err
	}
	var results []result
	var reference complaints // nil without the reference
	for i, l := range layouts {
		if !slices.Contains(chosen, l.name) {
			continue
		}
		progress("%s: API server %s, controllers %s, scheduler %s, node %s", l.name, l.api, l.controllers, l.scheduler, l.node)
		found, lines, err := try(ctx, o, l)
		if err != nil {
			lines = append(lines, result{l.name, "the layout is tried to its end", err})
		} else if i == 0 {
			reference = found
		} else {
			lines = append(lines, result{l.name, "complaints that upstream alone would not cause", judge(found, reference)})
		}
		results = append(results, lines...)
	}
	if slices.Contains(chosen, storeLayout) {
		lines, err := stores(ctx, o)
		if err != nil {
			lines = append(lines, result{storeLayout, "the layout is tried to its end", err})
		}
		results = append(results, lines...)
	}
	table, failed := renderResults(results)
	fmt.Print(table)
	if o.out != "" {
		if err := os.WriteFile(o.out, []byte(table), 0o644); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d did not hold", failed, len(results))
	}
	return ctx.Err()
}

// chosenLayouts returns the layouts named in a comma-separated list, or all if it is empty.
func chosenLayouts(names string) ([]string, error) {
	var all []string
	for _, l := range layouts {
		all = append(all, l.name)
	}
	all = append(all, storeLayout)
	if names == "" {
		return all, nil
	}
	chosen := strings.Split(names, ",")
	for _, name := range chosen {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("no layout is named %q: there are %s", name, strings.Join(all, ", "))
		}
	}
	return chosen, nil
}

// judge compares complaints with those of the reference, if there is one.
func judge(found, reference complaints) error {
	if reference == nil {
		return unjudged("there is no " + layouts[0].name + " to compare with")
	}
	return found.without(reference).error()
}

// try runs all workloads on one layout. The error means that the cluster did not start.
func try(ctx context.Context, o *options, l layout) (complaints, []result, error) {
	dir := filepath.Join(o.state, l.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	defer sweep()
	m, err := startMixed(ctx, o, l, dir)
	if err != nil {
		return nil, []result{{l.name, "the cluster starts", err}}, ctx.Err()
	}
	defer m.stop()
	b, err := newBench(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	results := b.run(ctx)
	results = append(results, result{l.name, "no part ends by itself", m.alive()})
	found, err := m.complaints()
	return found, results, errors.Join(err, ctx.Err())
}

func renderResults(results []result) (table string, failed int) {
	var b strings.Builder
	b.WriteString("| layout | what | held | cause |\n|---|---|---|---|\n")
	for _, r := range results {
		held, cause := "yes", ""
		if r.err != nil {
			held, cause = "**no**", strings.NewReplacer("\n", "<br>", "|", "\\|").Replace(r.err.Error())
			if _, open := r.err.(unjudged); open {
				held = "not judged"
			} else {
				failed++
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.layout, r.what, held, cause)
	}
	return b.String(), failed
}

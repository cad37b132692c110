package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// step is one command of the plan.
type step struct {
	name    string
	lane    string   // steps of one lane run one after the other
	needs   []string // steps that must have passed before
	command []string
	nice    int // priority as in nice; 0 is the highest
	// expected duration on two cores with empty caches, until a run has measured it
	cold  time.Duration
	alone bool // runs only if it is named
}

// limit ends a hanging step. Its parts have shorter limits and better messages.
const limit = 50 * time.Minute

// Priorities. Tests have time limits; compilers and checks do not.
const (
	clusters = 0
	tests    = 5
	compiles = 10
	checks   = 15
)

// plan lists the steps of `make test`. A lane's steps are in the order of execution.
var plan = []step{
	{name: "prerequisites", lane: "compile", command: []string{"hack/prerequisites.sh", "conformance"}, cold: 20 * time.Second},
	{name: "build", lane: "compile", needs: []string{"prerequisites"}, command: []string{"make", "--no-print-directory", "binary"}, nice: compiles, cold: 230 * time.Second},
	{name: "downloads", lane: "check", needs: []string{"prerequisites"}, command: []string{"hack/downloads.sh"}, nice: compiles, cold: 100 * time.Second},
	{name: "programs", lane: "compile", needs: []string{"build", "downloads"}, command: []string{"hack/programs.sh"}, nice: compiles, cold: 180 * time.Second},
	{name: "unit", lane: "compile", needs: []string{"build"}, command: []string{"hack/unit.sh"}, nice: tests, cold: 480 * time.Second},
	{name: "lint", lane: "check", needs: []string{"build"}, command: []string{"hack/lint.sh"}, nice: checks, cold: 300 * time.Second},
	{name: "e2e", lane: "cluster", needs: []string{"build", "programs"}, command: []string{"hack/e2e.sh"}, nice: clusters, cold: 150 * time.Second},
	{name: "conformance", lane: "cluster", needs: []string{"build", "programs"}, command: []string{"test/conformance/run.sh", "--list", "test/conformance/ci.txt"}, nice: clusters, cold: 180 * time.Second},
	{name: "quick", lane: "compile", command: []string{"hack/quick.sh"}, nice: tests, cold: 120 * time.Second, alone: true},
}

// choose returns the named steps in the order of the plan. Without names, it leaves out only the
// steps that run alone. It drops needs that are not chosen; the caller must satisfy them.
func choose(all []step, names []string) ([]step, error) {
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s step) bool { return s.name == name }) {
			var known []string
			for _, s := range all {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("no step %q: the steps are %s", name, strings.Join(known, ", "))
		}
	}
	var chosen []step
	if len(names) == 0 {
		for _, s := range all {
			if !s.alone {
				chosen = append(chosen, s)
			}
		}
		return chosen, nil
	}
	for _, s := range all {
		if slices.Contains(names, s.name) {
			s.needs = slices.DeleteFunc(slices.Clone(s.needs), func(need string) bool { return !slices.Contains(names, need) })
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Verdict is what one scheduler thinks of a case.
type Verdict struct {
	// Gated means that the pod's scheduling gates keep it out of the queue.
	Gated bool `json:"gated,omitempty"`
	// Everywhere is the refusal of all nodes by a PreFilter plugin.
	Everywhere string `json:"everywhere,omitempty"`
	// Refused has the refusal of each node, as a line with code, plugin and reasons.
	Refused map[string]string `json:"refused,omitempty"`
	// Scores are the weighted, normalised scores of the feasible nodes by plugin.
	Scores map[string]map[string]int64 `json:"scores,omitempty"`
	// Best are the feasible nodes that may be chosen; Score is their sum of scores.
	Best  []string `json:"best,omitempty"`
	Score int64    `json:"score,omitempty"`
	// Message is the text of the event FailedScheduling.
	Message string `json:"message,omitempty"`
	// Preempts are the nodes that preemption may choose. Victims are the pods to evict from each.
	Preempts []string            `json:"preempts,omitempty"`
	Victims  map[string][]string `json:"victims,omitempty"`
	// Devices are what the pod's claims get on each feasible node, by node and claim.
	Devices map[string]map[string]string `json:"devices,omitempty"`
	// InTheWay are the claims whose devices are not usable on some node: one of them may lose its
	// devices.
	InTheWay []string `json:"inTheWay,omitempty"`
	// Error is the failure of a plugin.
	Error string `json:"error,omitempty"`

	// trialFailed means that a plugin failed in a trial of preemption. Upstream then gives up.
	trialFailed bool
}

// refusal formats a status as a line of a Verdict.
func refusal(code, plugin string, reasons []string) string {
	return fmt.Sprintf("%s by %s: %s", code, plugin, strings.Join(slices.Sorted(slices.Values(reasons)), ", "))
}

// zeros removes plugins that score all nodes with 0: a skipped plugin does the same.
func zeros(scores map[string]map[string]int64) {
	maps.DeleteFunc(scores, func(_ string, nodes map[string]int64) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(nodes)), func(s int64) bool { return s != 0 })
	})
}

// differences compares ours with upstream's; empty means that they agree. Ours names one node where
// upstream has several equal ones to choose from.
func differences(ours, upstream *Verdict) string {
	if before, ok := strings.CutSuffix(upstream.Message, noPostFilter); ok && strings.HasPrefix(ours.Message, before) {
		ours.Message = upstream.Message
	}
	// The search for devices may fail on several nodes. Upstream looks at nodes in parallel.
	const failed = `running "DynamicResources" filter plugin: `
	if strings.HasPrefix(ours.Error, failed) && strings.HasPrefix(upstream.Error, failed) {
		ours.Error = upstream.Error
	}
	a, b := *ours, *upstream
	a.Best, b.Best = narrow(a.Best, b.Best)
	a.Preempts, b.Preempts = narrow(a.Preempts, b.Preempts)
	b.Victims = maps.Clone(b.Victims)
	maps.DeleteFunc(b.Victims, func(node string, _ []string) bool { return !slices.Contains(b.Preempts, node) })
	return cmp.Diff(&b, &a, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Verdict{}))
}

// narrow leaves of upstream's equal nodes the one that ours chose.
func narrow(ours, upstream []string) (a, b []string) {
	if len(ours) == 1 && slices.Contains(upstream, ours[0]) {
		return ours, ours
	}
	return ours, upstream
}

// kind names the parts of the verdicts that differ, for a summary of many cases.
func kind(ours, upstream *Verdict) string {
	var parts []string
	add := func(name string, a, b any) {
		if !cmp.Equal(a, b, cmpopts.EquateEmpty()) {
			parts = append(parts, name)
		}
	}
	add("error", ours.Error, upstream.Error)
	add("gated", ours.Gated, upstream.Gated)
	add("refusal of all nodes", ours.Everywhere, upstream.Everywhere)
	add("refusals", ours.Refused, upstream.Refused)
	for plugin := range upstream.Scores {
		add("score of "+plugin, ours.Scores[plugin], upstream.Scores[plugin])
	}
	for plugin := range ours.Scores {
		if upstream.Scores[plugin] == nil {
			parts = append(parts, "score of "+plugin)
		}
	}
	a, b := narrow(ours.Best, upstream.Best)
	add("node", a, b)
	if ours.Score != upstream.Score && !slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(p, "score") }) {
		parts = append(parts, "sum of scores")
	}
	add("devices", ours.Devices, upstream.Devices)
	add("claims in the way", ours.InTheWay, upstream.InTheWay)
	add("message", ours.Message, upstream.Message)
	a, b = narrow(ours.Preempts, upstream.Preempts)
	add("node of preemption", a, b)
	if len(a) == 1 && slices.Equal(a, b) {
		add("victims", ours.Victims[a[0]], upstream.Victims[a[0]])
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

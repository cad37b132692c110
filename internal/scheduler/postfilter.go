package scheduler

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// postFilter asks the PostFilter plugins to make room for a refused pod, until one nominates a
// node. The text has what the others say.
func (s *Scheduler) postFilter(ctx context.Context, pod *framework.PodInfo, profile *framework.Profile, snapshot *framework.Snapshot, d *Decision) (node, text string, err error) {
	if d.Nodes == 0 || len(profile.PostFilters) == 0 {
		return "", "", nil
	}
	refusals := d.refusalOfEach(snapshot)
	var said []string
	for _, p := range profile.PostFilters {
		began := time.Now()
		node, status := p.PostFilter(ctx, d.State, pod, snapshot, refusals)
		s.metrics.ran(p, "PostFilter", status, began)
		switch {
		case status.OK():
			return node, strings.Join(said, ", "), nil
		case !status.Rejected():
			return "", "", fmt.Errorf("running PostFilter plugin %q: %s", p.Name(), reasonsOf(status))
		}
		said = append(said, status.Reasons...)
		if status.Code == framework.UnschedulableAndUnresolvable {
			break
		}
	}
	return "", strings.Join(said, ", "), nil
}

// refusalOfEach returns the refusals of the nodes.
func (d *Decision) refusalOfEach(snapshot *framework.Snapshot) *Refusals {
	if d.Whole != nil {
		return &Refusals{snapshot: snapshot, whole: d.Whole}
	}
	return &d.Refusals
}

func reasonsOf(status *framework.Status) string { return strings.Join(status.Reasons, ", ") }

// defaultPreemption evicts pods of lower priority, where this does the least harm.
type defaultPreemption struct {
	s *Scheduler
	// profile has the plugins that say whether the pod fits without its victims.
	profile    *framework.Profile
	candidates func(nodes int) int
}

func (*defaultPreemption) Name() string { return framework.DefaultPreemption }

// PostFilter nominates a node and evicts its victims in the background.
func (p *defaultPreemption) PostFilter(ctx context.Context, _ framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, refusals framework.Refusals) (string, *framework.Status) {
	if why := mayNotPreempt(snapshot, pod.Pod, refusals); why != "" {
		return "", framework.Refuse("preemption: " + why)
	}
	p.s.metrics.preemptions.Inc()
	nodes := snapshot.Nodes.Len()
	candidates, reasons := p.s.candidatesFor(snapshot, pod, p.profile, p.candidates(nodes), refusals)
	candidates, err := p.s.askAboutVictims(ctx, pod, snapshot, candidates)
	if err != nil {
		return "", framework.Fail(err)
	}
	v := leastHarm(candidates)
	if v == nil {
		return "", framework.Refuse(reasons.message(nodes))
	}
	p.s.metrics.victims.Observe(float64(len(v.pods)))
	p.s.write(ctx, func() { p.s.evict(ctx, pod.Pod, v) })
	return v.node, nil
}

// candidatesFor is the function of the same name, for the state of the scheduler.
func (s *Scheduler) candidatesFor(snapshot *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile, most int, refusals framework.Refusals) ([]*victims, reasons) {
	in := Input{Snapshot: snapshot, Pod: pod, Profile: profile, Nominated: s.nominated, Start: s.nextStart}
	return candidatesFor(&in, most, refusals, s.budgets.List("", nil))
}

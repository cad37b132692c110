package scheduler

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// evaluations count the decisions in which the plugins of a profile take part. The counters are in
// the order of the profile's lists: looking them up for each decision would cost more than
// counting.
type evaluations struct {
	preFilters, filters, preScores, scores []prometheus.Counter
}

func (m *Metrics) evaluationsOf(p *framework.Profile) *evaluations {
	counter := func(name, point string) prometheus.Counter {
		return m.evaluations.WithLabelValues(name, point, p.SchedulerName)
	}
	e := &evaluations{}
	for _, f := range p.PreFilters {
		e.preFilters = append(e.preFilters, counter(f.Name(), "PreFilter"))
	}
	for _, f := range p.Filters {
		e.filters = append(e.filters, counter(f.Name(), "Filter"))
	}
	for _, f := range p.PreScores {
		e.preScores = append(e.preScores, counter(f.Name(), "PreScore"))
	}
	for _, f := range p.Scores {
		e.scores = append(e.scores, counter(f.Name(), "Score"))
	}
	return e
}

// count counts a decision with the profile. Plugins count once, however many nodes there are: their
// answers about most nodes may be known from earlier decisions. A nil receiver counts nothing.
func (e *evaluations) count(p *framework.Profile, d *Decision) {
	if e == nil {
		return
	}
	for i, f := range p.PreFilters {
		e.preFilters[i].Inc()
		if d.Whole != nil && d.Whole.Plugin == f.Name() {
			return
		}
	}
	if d.Err != nil || d.Nodes == 0 {
		return
	}
	for i, f := range p.Filters {
		if !d.Skipped.Has(f.Name()) {
			e.filters[i].Inc()
		}
	}
	if d.Feasible < 2 {
		return
	}
	for i := range p.PreScores {
		e.preScores[i].Inc()
	}
	for i, f := range p.Scores {
		if !d.Silent.Has(f.Name()) {
			e.scores[i].Inc()
		}
	}
}

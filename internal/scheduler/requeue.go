package scheduler

import (
	"context"
	"time"

	"github.com/knarr-project/knarr/internal/scheduler/extender"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// requeues has the plugins of a profile that can refuse a pod, with the events after which a
// refusal may change.
type requeues map[string]requeue

type requeue struct {
	on   framework.Events
	hint framework.Hinter // nil: each event helps
}

func requeuesOf(profile *framework.Profile) requeues {
	r := requeues{}
	add := func(p framework.Plugin) {
		one := requeue{on: framework.Any}
		if known, ok := p.(framework.Requeuer); ok {
			one.on = known.RequeueOn()
		}
		one.hint, _ = p.(framework.Hinter)
		r[p.Name()] = one
	}
	for _, p := range profile.PreEnqueues {
		add(p)
	}
	for _, p := range profile.PreFilters {
		add(p)
	}
	for _, p := range profile.Filters {
		add(p)
	}
	for _, p := range profile.Reserves {
		add(p)
	}
	for _, p := range profile.Permits {
		add(p)
	}
	return r
}

// wants returns the events of some plugins.
func (r requeues) wants(plugins []string) framework.Events {
	var wants framework.Events
	for _, p := range plugins {
		if p == extender.Name {
			wants |= framework.Any
		}
		wants |= r[p].on
	}
	return wants
}

// helps reports whether a change may end the refusal of one of the plugins that refused the pod.
func (s *Scheduler) helps(p *queued, change *framework.Change) bool {
	if len(p.refused) == 0 || change.Old == nil && change.New == nil {
		return true
	}
	known := s.requeues[p.info.Pod.Spec.SchedulerName]
	for _, name := range p.refused {
		r, ok := known[name]
		switch {
		case !ok:
			return true
		case r.on&change.Events == 0:
			continue
		case r.hint == nil:
			return true
		}
		began := time.Now()
		helps := r.hint.Helps(p.info, change)
		s.metrics.hinted(name, r.on&change.Events, helps, began)
		if helps {
			return true
		}
	}
	return false
}

// preEnqueue asks the PreEnqueue plugins of the pod's profile, and returns the first that refuses
// it with the events of the plugin.
func (s *Scheduler) preEnqueue(ctx context.Context, info *framework.PodInfo) (plugin string, wants framework.Events) {
	profile := s.profiles[info.Pod.Spec.SchedulerName]
	if profile == nil {
		return "", 0
	}
	for _, p := range profile.PreEnqueues {
		if status := p.PreEnqueue(ctx, info.Pod); !status.OK() {
			return p.Name(), s.requeues[profile.SchedulerName][p.Name()].on
		}
	}
	return "", 0
}

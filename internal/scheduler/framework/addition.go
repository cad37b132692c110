package framework

import "slices"

// Addition is a plugin that is added to profiles at run time.
type Addition struct {
	Name string
	// Profiles are the scheduler names of the profiles; none means all.
	Profiles []string
	// AddTo adds the plugin to a copy of a profile.
	AddTo func(*Profile)
}

// Extend returns a copy of the profile with the additions that are meant for it.
func (p *Profile) Extend(added []Addition) *Profile {
	out := *p
	out.PreEnqueues = slices.Clip(p.PreEnqueues)
	out.PreFilters = slices.Clip(p.PreFilters)
	out.Filters = slices.Clip(p.Filters)
	out.PostFilters = slices.Clip(p.PostFilters)
	out.PreScores = slices.Clip(p.PreScores)
	out.Scores = slices.Clip(p.Scores)
	out.Reserves = slices.Clip(p.Reserves)
	out.Permits = slices.Clip(p.Permits)
	out.PreBinds = slices.Clip(p.PreBinds)
	out.Binds = slices.Clip(p.Binds)
	out.PostBinds = slices.Clip(p.PostBinds)
	for _, e := range added {
		if len(e.Profiles) == 0 || slices.Contains(e.Profiles, p.SchedulerName) {
			e.AddTo(&out)
		}
	}
	return &out
}

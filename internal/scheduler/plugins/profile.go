package plugins

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// quiet is the logger that helpers of k8s.io/api require for comparison operators of taints.
var quiet = logr.Discard()

// Merge applies a profile's plugins to the default ones. A plugin that is enabled again keeps its
// place in the order and takes the new weight. Others come last. "*" disables all defaults.
func Merge(defaults, custom *configv1.Plugins) *configv1.Plugins {
	if custom == nil {
		return defaults
	}
	merged := &configv1.Plugins{}
	into, from := sections(merged), sections(custom)
	for i, base := range sections(defaults) {
		*into[i].set = mergeSet(*base.set, *from[i].set)
	}
	return merged
}

func mergeSet(defaults, custom configv1.PluginSet) configv1.PluginSet {
	merged := configv1.PluginSet{Disabled: slices.Concat(custom.Disabled, defaults.Disabled)}
	disabled := sets.New[string]()
	for _, p := range merged.Disabled {
		disabled.Insert(p.Name)
	}
	again := map[string]int{}
	for i, p := range custom.Enabled {
		again[p.Name] = i
	}
	placed := sets.New[int]()
	for _, p := range defaults.Enabled {
		if disabled.Has("*") || disabled.Has(p.Name) {
			continue
		}
		if i, ok := again[p.Name]; ok {
			p = custom.Enabled[i]
			placed.Insert(i)
		}
		merged.Enabled = append(merged.Enabled, p)
	}
	for i, p := range custom.Enabled {
		if !placed.Has(i) {
			merged.Enabled = append(merged.Enabled, p)
		}
	}
	return merged
}

// section is the list of one extension point, with its name in the file.
type section struct {
	point string
	set   *configv1.PluginSet
}

func sections(p *configv1.Plugins) []section {
	return []section{
		{"multiPoint", &p.MultiPoint},
		{"preEnqueue", &p.PreEnqueue},
		{"queueSort", &p.QueueSort},
		{"preFilter", &p.PreFilter},
		{"filter", &p.Filter},
		{"postFilter", &p.PostFilter},
		{"preScore", &p.PreScore},
		{"score", &p.Score},
		{"reserve", &p.Reserve},
		{"permit", &p.Permit},
		{"preBind", &p.PreBind},
		{"bind", &p.Bind},
		{"postBind", &p.PostBind},
		{"placementGenerate", &p.PlacementGenerate},
		{"placementScore", &p.PlacementScore},
	}
}

// Enabled returns the names of the plugins that some extension point enables, each once.
func Enabled(p *configv1.Plugins) (names []string) {
	for _, s := range sections(p) {
		for _, plugin := range s.set.Enabled {
			if !slices.Contains(names, plugin.Name) {
				names = append(names, plugin.Name)
			}
		}
	}
	return names
}

// Profile makes the plugins of a profile and puts them in the order of each extension point. The
// profile must have its defaults. Errors name the field below path.
func (f Factories) Profile(path *field.Path, spec *configv1.KubeSchedulerProfile, h framework.Handle) (framework.Profile, error) {
	a := &assembly{path: path.Child("plugins"), plugins: spec.Plugins, made: map[string]framework.Plugin{}}
	f.make(a, path, spec, h)
	profile := framework.Profile{
		SchedulerName: *spec.SchedulerName,
		PreEnqueues:   at[framework.PreEnqueuePlugin](a, "preEnqueue", spec.Plugins.PreEnqueue),
		PreFilters:    at[framework.PreFilterPlugin](a, "preFilter", spec.Plugins.PreFilter),
		Filters:       at[framework.FilterPlugin](a, "filter", spec.Plugins.Filter),
		PostFilters:   at[framework.PostFilterPlugin](a, "postFilter", spec.Plugins.PostFilter),
		PreScores:     at[framework.PreScorePlugin](a, "preScore", spec.Plugins.PreScore),
		Reserves:      at[framework.ReservePlugin](a, "reserve", spec.Plugins.Reserve),
		Permits:       at[framework.PermitPlugin](a, "permit", spec.Plugins.Permit),
		PreBinds:      at[framework.PreBindPlugin](a, "preBind", spec.Plugins.PreBind),
		Binds:         at[framework.BindPlugin](a, "bind", spec.Plugins.Bind),
		PostBinds:     at[framework.PostBindPlugin](a, "postBind", spec.Plugins.PostBind),
	}
	if spec.PercentageOfNodesToScore != nil {
		profile.PercentageOfNodesToScore = *spec.PercentageOfNodesToScore
	}
	profile.QueueSort = a.queueSort(spec.Plugins.QueueSort)
	profile.Scores = a.scores(spec.Plugins.Score)
	return profile, a.errs.ToAggregate()
}

// assembly is the work of Profile. A plugin is made once for all its extension points.
type assembly struct {
	path    *field.Path
	plugins *configv1.Plugins
	made    map[string]framework.Plugin
	errs    field.ErrorList
}

// make makes the plugins that some extension point enables.
func (f Factories) make(a *assembly, path *field.Path, spec *configv1.KubeSchedulerProfile, h framework.Handle) {
	args := map[string]runtime.Object{}
	where := map[string]*field.Path{}
	for i, c := range spec.PluginConfig {
		args[c.Name], where[c.Name] = c.Args.Object, path.Child("pluginConfig").Index(i).Child("args")
	}
	for _, s := range sections(spec.Plugins) {
		if s.point == "placementGenerate" || s.point == "placementScore" {
			for i, p := range s.set.Enabled {
				a.errs = append(a.errs, field.Forbidden(a.path.Child(s.point, "enabled").Index(i), fmt.Sprintf("plugin %s: this scheduler has no placements of pod groups; remove the entry", p.Name)))
			}
			continue
		}
		for i, p := range s.set.Enabled {
			at := a.path.Child(s.point, "enabled").Index(i).Child("name")
			factory, ok := f[p.Name]
			switch {
			case !ok:
				a.errs = append(a.errs, unknownPlugin(at, p.Name, f))
			case a.made[p.Name] == nil:
				made, err := factory(args[p.Name], h)
				if err != nil {
					if where[p.Name] != nil {
						at = where[p.Name]
					}
					a.errs = append(a.errs, field.Invalid(at, p.Name, err.Error()))
					continue
				}
				a.made[p.Name] = made
			}
		}
	}
}

func unknownPlugin(at *field.Path, name string, f Factories) *field.Error {
	return field.NotSupported(at, name, slices.Sorted(maps.Keys(f)))
}

// order returns the names at one extension point. First come the plugins of the point that
// multiPoint has too, then the others of multiPoint, then the others of the point.
func order[T framework.Plugin](a *assembly, point string, set configv1.PluginSet) []string {
	own := make([]string, 0, len(set.Enabled))
	for i, p := range set.Enabled {
		at := a.path.Child(point, "enabled").Index(i)
		made, ok := a.made[p.Name]
		if _, does := made.(T); ok && !does {
			a.errs = append(a.errs, field.Invalid(at.Child("name"), p.Name, fmt.Sprintf("the plugin does not implement %s", point)))
		}
		if slices.Contains(own, p.Name) {
			a.errs = append(a.errs, field.Duplicate(at.Child("name"), p.Name))
			continue
		}
		own = append(own, p.Name)
	}
	disabled := sets.New[string]()
	for _, p := range set.Disabled {
		disabled.Insert(p.Name)
	}
	if disabled.Has("*") {
		return own
	}
	var both, multi []string
	for i, p := range a.plugins.MultiPoint.Enabled {
		made, ok := a.made[p.Name]
		if _, does := made.(T); !ok || !does || disabled.Has(p.Name) {
			continue
		}
		switch {
		case slices.Contains(own, p.Name):
			both = append(both, p.Name)
		case slices.Contains(multi, p.Name):
			a.errs = append(a.errs, field.Duplicate(a.path.Child("multiPoint", "enabled").Index(i).Child("name"), p.Name))
		default:
			multi = append(multi, p.Name)
		}
	}
	var first, last []string
	for _, name := range own {
		if slices.Contains(both, name) {
			first = append(first, name)
		} else {
			last = append(last, name)
		}
	}
	return slices.Concat(first, multi, last)
}

// at returns the plugins of one extension point.
func at[T framework.Plugin](a *assembly, point string, set configv1.PluginSet) []T {
	var out []T
	for _, name := range order[T](a, point, set) {
		if p, ok := a.made[name].(T); ok {
			out = append(out, p)
		}
	}
	return out
}

func (a *assembly) queueSort(set configv1.PluginSet) framework.QueueSortPlugin {
	all := at[framework.QueueSortPlugin](a, "queueSort", set)
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name()
	}
	a.errs = append(a.errs, field.Invalid(a.path.Child("queueSort", "enabled"), names, "only one QueueSort plugin can be enabled; disable the others"))
	return nil
}

// scores returns the Score plugins with their weights. The weight at the point itself wins over the
// one in multiPoint; none means 1.
func (a *assembly) scores(set configv1.PluginSet) []framework.Weighted {
	weights := map[string]int64{}
	for _, p := range slices.Concat(set.Enabled, a.plugins.MultiPoint.Enabled) {
		if _, ok := weights[p.Name]; !ok {
			weights[p.Name] = 1
			if p.Weight != nil && *p.Weight != 0 {
				weights[p.Name] = int64(*p.Weight)
			}
		}
	}
	var out []framework.Weighted
	var total int64
	for _, p := range at[framework.ScorePlugin](a, "score", set) {
		weight := weights[p.Name()]
		if weight < 0 || weight*framework.MaxNodeScore > math.MaxInt64-total {
			a.errs = append(a.errs, field.Invalid(a.path.Child("score", "enabled").Key(p.Name()).Child("weight"), weight, "must be positive, and the sum of all scores must fit in 64 bits"))
			continue
		}
		total += weight * framework.MaxNodeScore
		out = append(out, framework.Weighted{ScorePlugin: p, Weight: weight})
	}
	return out
}

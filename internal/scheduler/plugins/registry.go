package plugins

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Factory makes a plugin. The arguments are the plugin's own type with its defaults set, or nil.
type Factory func(args runtime.Object, h framework.Handle) (framework.Plugin, error)

// Factories are the known plugins by name.
type Factories map[string]Factory

// Builtin returns the plugins of this package. The scheduler adds those that act on the cluster.
func Builtin() Factories {
	return Factories{
		"SchedulingGates":                 always(schedulingGates{"SchedulingGates"}),
		"PrioritySort":                    always(prioritySort{"PrioritySort"}),
		"NodeUnschedulable":               always(nodeUnschedulable{"NodeUnschedulable"}),
		"NodeName":                        always(nodeName{"NodeName"}),
		"TaintToleration":                 always(taintToleration{"TaintToleration"}),
		"NodeAffinity":                    newNodeAffinity,
		"NodePorts":                       always(nodePorts{"NodePorts"}),
		"NodeResourcesFit":                newFit,
		"VolumeRestrictions":              always(volumeRestrictions{"VolumeRestrictions"}),
		"NodeVolumeLimits":                always(volumeLimits{"NodeVolumeLimits"}),
		framework.VolumeBinding:           always(volumeBinding{framework.VolumeBinding}),
		"VolumeZone":                      always(volumeZone{"VolumeZone"}),
		"PodTopologySpread":               newSpread,
		"InterPodAffinity":                newInterPodAffinity,
		framework.DynamicResources:        newDynamicResources,
		"NodeResourcesBalancedAllocation": newBalance,
		"NodeDeclaredFeatures":            always(nodeFeatures{"NodeDeclaredFeatures"}),
		"ImageLocality":                   always(imageLocality{"ImageLocality"}),
	}
}

func always(p framework.Plugin) Factory {
	return func(runtime.Object, framework.Handle) (framework.Plugin, error) { return p, nil }
}

// Defaults returns upstream's default plugins in upstream's order, with its weights.
func Defaults() *configv1.Plugins {
	weighted := func(name string, weight int32) configv1.Plugin { return configv1.Plugin{Name: name, Weight: &weight} }
	return &configv1.Plugins{MultiPoint: configv1.PluginSet{Enabled: []configv1.Plugin{
		{Name: "SchedulingGates"},
		{Name: "PrioritySort"},
		{Name: "NodeUnschedulable"},
		{Name: "NodeName"},
		weighted("TaintToleration", 3),
		weighted("NodeAffinity", 2),
		{Name: "NodePorts"},
		weighted("NodeResourcesFit", 1),
		{Name: "VolumeRestrictions"},
		{Name: "NodeVolumeLimits"},
		{Name: framework.VolumeBinding},
		{Name: "VolumeZone"},
		weighted("PodTopologySpread", 2),
		weighted("InterPodAffinity", 2),
		weighted(framework.DynamicResources, 2),
		{Name: framework.DefaultPreemption},
		weighted("NodeResourcesBalancedAllocation", 1),
		weighted("ImageLocality", 1),
		{Name: framework.DefaultBinder},
		{Name: "NodeDeclaredFeatures"},
	}}}
}

// Default returns upstream's default profile with the plugins of this package.
func Default(schedulerName string) framework.Profile {
	known, enabled := Builtin(), Defaults()
	enabled.MultiPoint.Enabled = slices.DeleteFunc(enabled.MultiPoint.Enabled, func(p configv1.Plugin) bool { return known[p.Name] == nil })
	spec := configv1.KubeSchedulerProfile{SchedulerName: &schedulerName, Plugins: enabled}
	profile, err := known.Profile(field.NewPath("profiles").Index(0), &spec, nil)
	if err != nil {
		panic(err) // only a mistake in this file can cause it
	}
	return profile
}

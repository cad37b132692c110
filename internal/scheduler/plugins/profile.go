package plugins

import (
	"github.com/go-logr/logr"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// quiet is the logger that helpers of k8s.io/api require for comparison operators of taints.
var quiet = logr.Discard()

// Default returns upstream's default profile, in upstream's order and with its weights.
func Default(schedulerName string) framework.Profile {
	var (
		unschedulable = nodeUnschedulable{"NodeUnschedulable"}
		name          = nodeName{"NodeName"}
		taints        = taintToleration{"TaintToleration"}
		affinity      = nodeAffinity{"NodeAffinity"}
		ports         = nodePorts{"NodePorts"}
		fit           = resourcesFit{"NodeResourcesFit"}
		restrictions  = volumeRestrictions{"VolumeRestrictions"}
		limits        = volumeLimits{"NodeVolumeLimits"}
		binding       = volumeBinding{framework.VolumeBinding}
		zone          = volumeZone{"VolumeZone"}
		spread        = topologySpread{"PodTopologySpread"}
		interpod      = interPodAffinity{"InterPodAffinity"}
		devices       = dynamicResources{framework.DynamicResources}
		images        = imageLocality{"ImageLocality"}
	)
	return framework.Profile{
		SchedulerName: schedulerName,
		PreFilters:    []framework.PreFilterPlugin{affinity, ports, restrictions, limits, binding, zone, spread, interpod, devices},
		Filters:       []framework.FilterPlugin{unschedulable, name, taints, affinity, ports, fit, restrictions, limits, binding, zone, spread, interpod, devices},
		PreScores:     []framework.PreScorePlugin{spread, interpod, devices, images},
		Scores: []framework.Weighted{
			{ScorePlugin: taints, Weight: 3},
			{ScorePlugin: affinity, Weight: 2},
			{ScorePlugin: fit, Weight: 1},
			{ScorePlugin: spread, Weight: 2},
			{ScorePlugin: interpod, Weight: 2},
			{ScorePlugin: devices, Weight: 2},
			{ScorePlugin: balanced{"NodeResourcesBalancedAllocation"}, Weight: 1},
			{ScorePlugin: images, Weight: 1},
		},
	}
}

package settings

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// Upstream's defaults.
const (
	parallelism           = 16
	initialBackoffSeconds = 1
	maxBackoffSeconds     = 10
	candidatesPercentage  = 10
	candidatesAbsolute    = 100
	bindTimeoutSeconds    = 600
	queriesPerSecond      = 50
	burst                 = 100
)

// set stores the default of a field that is not given.
func set[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// complete sets upstream's defaults.
func complete(c *configv1.KubeSchedulerConfiguration) {
	c.APIVersion, c.Kind = configv1.SchemeGroupVersion.String(), kind
	set(&c.Parallelism, parallelism)
	set(&c.PercentageOfNodesToScore, 0)
	set(&c.PodInitialBackoffSeconds, initialBackoffSeconds)
	set(&c.PodMaxBackoffSeconds, maxBackoffSeconds)
	set(&c.EnableProfiling, true)
	if *c.EnableProfiling {
		set(&c.EnableContentionProfiling, true)
	}
	setZero(&c.LeaderElection.ResourceLock, "leases")
	setZero(&c.LeaderElection.ResourceNamespace, configv1.SchedulerDefaultLockObjectNamespace)
	setZero(&c.LeaderElection.ResourceName, configv1.SchedulerDefaultLockObjectName)
	componentconfig.RecommendedDefaultLeaderElectionConfiguration(&c.LeaderElection)
	setZero(&c.ClientConnection.ContentType, runtime.ContentTypeProtobuf)
	setZero(&c.ClientConnection.QPS, queriesPerSecond)
	setZero(&c.ClientConnection.Burst, burst)
	if len(c.Profiles) == 0 {
		c.Profiles = []configv1.KubeSchedulerProfile{{}}
	}
	if len(c.Profiles) == 1 && c.Profiles[0].SchedulerName == nil {
		c.Profiles[0].SchedulerName = ptr.To(corev1.DefaultSchedulerName)
	}
	for i := range c.Profiles {
		completeProfile(&c.Profiles[i])
	}
}

func completeProfile(p *configv1.KubeSchedulerProfile) {
	p.Plugins = plugins.Merge(plugins.Defaults(), p.Plugins)
	for _, name := range plugins.Enabled(p.Plugins) {
		args := argsOf(name)
		if args == nil || slices.ContainsFunc(p.PluginConfig, func(c configv1.PluginConfig) bool { return c.Name == name }) {
			continue
		}
		args.GetObjectKind().SetGroupVersionKind(configv1.SchemeGroupVersion.WithKind(name + "Args"))
		p.PluginConfig = append(p.PluginConfig, configv1.PluginConfig{Name: name, Args: runtime.RawExtension{Object: args}})
	}
	for i := range p.PluginConfig {
		completeArgs(p.PluginConfig[i].Args.Object)
	}
}

func completeArgs(args runtime.Object) {
	switch a := args.(type) {
	case *configv1.DefaultPreemptionArgs:
		set(&a.MinCandidateNodesPercentage, candidatesPercentage)
		set(&a.MinCandidateNodesAbsolute, candidatesAbsolute)
	case *configv1.InterPodAffinityArgs:
		set(&a.HardPodAffinityWeight, 1)
	case *configv1.VolumeBindingArgs:
		set(&a.BindTimeoutSeconds, bindTimeoutSeconds)
	case *configv1.NodeResourcesBalancedAllocationArgs:
		a.Resources = completeResources(a.Resources)
	case *configv1.NodeResourcesFitArgs:
		if a.ScoringStrategy == nil {
			a.ScoringStrategy = &configv1.ScoringStrategy{Type: configv1.LeastAllocated}
		}
		a.ScoringStrategy.Resources = completeResources(a.ScoringStrategy.Resources)
	case *configv1.PodTopologySpreadArgs:
		setZero(&a.DefaultingType, configv1.SystemDefaulting)
	case *configv1.DynamicResourcesArgs:
		set(&a.FilterTimeout, metav1.Duration{Duration: configv1.DynamicResourcesFilterTimeoutDefault})
		set(&a.BindingTimeout, metav1.Duration{Duration: configv1.DynamicResourcesBindingTimeoutDefault})
	}
}

func completeResources(list []configv1.ResourceSpec) []configv1.ResourceSpec {
	if len(list) == 0 {
		return []configv1.ResourceSpec{{Name: string(corev1.ResourceCPU), Weight: 1}, {Name: string(corev1.ResourceMemory), Weight: 1}}
	}
	for i := range list {
		setZero(&list[i].Weight, 1)
	}
	return list
}

// WithIgnored adds the resources that extenders manage, and that the scheduler is to ignore, to the
// arguments of NodeResourcesFit. It changes the profile.
func WithIgnored(p *configv1.KubeSchedulerProfile, extenders []configv1.Extender) *configv1.KubeSchedulerProfile {
	for i := range p.PluginConfig {
		args, ok := p.PluginConfig[i].Args.Object.(*configv1.NodeResourcesFitArgs)
		if !ok {
			continue
		}
		for _, e := range extenders {
			for _, r := range e.ManagedResources {
				if r.IgnoredByScheduler {
					args.IgnoredResources = append(args.IgnoredResources, r.Name)
				}
			}
		}
	}
	return p
}

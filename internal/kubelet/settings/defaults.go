package settings

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Eviction thresholds by default, as upstream.
var evictionHard = map[string]string{
	"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
}

// complete sets unset fields to their defaults. They are those that upstream documents in
// k8s.io/kubelet/config/v1beta1, except for the fields that Own lists.
func complete(s *Settings) {
	c := &s.KubeletConfiguration
	c.APIVersion, c.Kind = apiVersion, kind
	completeServing(c)
	completeStatus(c)
	completeImages(c)
	completeCgroups(c)
	completeEviction(c)
	completePods(c)
	completeLogs(c)
}

func completeServing(c *kubeletconfig.KubeletConfiguration) {
	set(&c.EnableServer, true)
	fill(&c.Address, "0.0.0.0")
	fill(&c.Port, 10250)
	set(&c.HealthzPort, 0) // Own
	fill(&c.HealthzBindAddress, "127.0.0.1")
	set(&c.Authentication.Anonymous.Enabled, false)
	set(&c.Authentication.Webhook.Enabled, true)
	span(&c.Authentication.Webhook.CacheTTL, 2*time.Minute)
	fill(&c.Authorization.Mode, kubeletconfig.KubeletAuthorizationModeWebhook)
	span(&c.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	span(&c.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	span(&c.StreamingConnectionIdleTimeout, 4*time.Hour)
	set(&c.EnableDebuggingHandlers, true)
	set(&c.EnableSystemLogHandler, true)
	set(&c.EnableSystemLogQuery, false)
	set(&c.EnableProfilingHandler, true)
	set(&c.EnableDebugFlagsHandler, true)
	set(&c.KubeAPIQPS, 50)
	fill(&c.KubeAPIBurst, 100)
	fill(&c.ContentType, "application/vnd.kubernetes.protobuf")
	set(&c.EventRecordQPS, 0) // Own
	fill(&c.EventBurst, 100)
}

func completeStatus(c *kubeletconfig.KubeletConfiguration) {
	// An explicit update frequency is also the report frequency, for compatibility.
	report := 5 * time.Minute
	if c.NodeStatusUpdateFrequency.Duration != 0 {
		report = c.NodeStatusUpdateFrequency.Duration
	}
	span(&c.NodeStatusReportFrequency, report)
	span(&c.NodeStatusUpdateFrequency, 10*time.Second)
	fill(&c.NodeLeaseDurationSeconds, 40)
	set(&c.NodeStatusMaxImages, 50)
	set(&c.RegisterNode, true)
	set(&c.OOMScoreAdj, -999)
	fill(&c.MaxOpenFiles, 1000000)
	set(&c.EnableControllerAttachDetach, true)
	span(&c.SyncFrequency, time.Minute)
	span(&c.FileCheckFrequency, 20*time.Second)
	span(&c.HTTPCheckFrequency, 20*time.Second)
	span(&c.VolumeStatsAggPeriod, time.Minute)
	span(&c.RuntimeRequestTimeout, 2*time.Minute)
	fill(&c.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	fill(&c.ConfigMapAndSecretChangeDetectionStrategy, kubeletconfig.WatchChangeDetectionStrategy)
	set(&c.MakeIPTablesUtilChains, true)
	set(&c.IPTablesMasqueradeBit, 14)
	set(&c.IPTablesDropBit, 15)
	fill(&c.HairpinMode, kubeletconfig.PromiscuousBridge)
	set(&c.LocalStorageCapacityIsolation, true)
}

func completeImages(c *kubeletconfig.KubeletConfiguration) {
	set(&c.RegistryPullQPS, 5)
	fill(&c.RegistryBurst, 10)
	set(&c.SerializeImagePulls, false) // Own
	span(&c.ImageMinimumGCAge, 2*time.Minute)
	set(&c.ImageGCHighThresholdPercent, 85)
	set(&c.ImageGCLowThresholdPercent, 80)
	fill(&c.ImagePullCredentialsVerificationPolicy, kubeletconfig.NeverVerifyPreloadedImages)
}

func completeCgroups(c *kubeletconfig.KubeletConfiguration) {
	set(&c.CgroupsPerQOS, true)
	fill(&c.CgroupDriver, "cgroupfs")
	set(&c.FailCgroupV1, false) // Own
	set(&c.FailSwapOn, false)   // Own
	fill(&c.MemorySwap.SwapBehavior, "NoSwap")
	fill(&c.CPUManagerPolicy, "none")
	span(&c.CPUManagerReconcilePeriod, 10*time.Second)
	fill(&c.MemoryManagerPolicy, kubeletconfig.NoneMemoryManagerPolicy)
	fill(&c.TopologyManagerPolicy, kubeletconfig.NoneTopologyManagerPolicy)
	fill(&c.TopologyManagerScope, kubeletconfig.ContainerTopologyManagerScope)
	set(&c.CPUCFSQuota, true)
	set(&c.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	set(&c.MemoryThrottlingFactor, 0.9)
	fill(&c.MemoryReservationPolicy, kubeletconfig.NoneMemoryReservationPolicy)
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
}

func completeEviction(c *kubeletconfig.KubeletConfiguration) {
	switch {
	case len(c.EvictionHard) == 0 || c.MergeDefaultEvictionSettings != nil && *c.MergeDefaultEvictionSettings:
		all := maps.Clone(evictionHard)
		maps.Copy(all, c.EvictionHard)
		c.EvictionHard = all
	default:
		for signal := range evictionHard {
			if _, given := c.EvictionHard[signal]; !given {
				c.EvictionHard[signal] = "0"
			}
		}
	}
	set(&c.MergeDefaultEvictionSettings, false)
	span(&c.EvictionPressureTransitionPeriod, 5*time.Minute)
}

func completePods(c *kubeletconfig.KubeletConfiguration) {
	fill(&c.MaxPods, 110)
	set(&c.PodPidsLimit, -1)
	set(&c.ResolverConfig, "/etc/resolv.conf")
	set(&c.SeccompDefault, false)
	set(&c.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 5 * time.Minute})
	if c.UserNamespaces == nil {
		c.UserNamespaces = &kubeletconfig.UserNamespaces{}
	}
	set(&c.UserNamespaces.IDsPerPod, 65536)
}

func completeLogs(c *kubeletconfig.KubeletConfiguration) {
	fill(&c.PodLogsDir, "/var/log/pods/")
	fill(&c.ContainerLogMaxSize, "10Mi")
	set(&c.ContainerLogMaxFiles, 5)
	set(&c.ContainerLogMaxWorkers, 1)
	set(&c.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	fill(&c.Logging.Format, logsapi.DefaultLogFormat)
	if c.Logging.FlushFrequency.Duration.Duration == 0 {
		c.Logging.FlushFrequency = logsapi.TimeOrMetaDuration{Duration: metav1.Duration{Duration: 5 * time.Second}, SerializeAsString: true}
	}
	c.Logging.FlushFrequency.SerializeAsString = true
}

// fill sets a field that has its zero value.
func fill[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// set sets a pointer that is nil.
func set[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func span(field *metav1.Duration, value time.Duration) { fill(&field.Duration, value) }

// Own lists the fields whose default is knarr's own, with the reason.
var Own = map[string]string{
	"kubeReserved":        "pods must not starve knarr",
	"healthzPort":         "several clusters can share a machine",
	"serializeImagePulls": "pods do not wait for the images of others",
	"eventRecordQPS":      "events are written at once",
	"failCgroupV1":        "cgroup v1 is supported",
	"failSwapOn":          "pods do not use swap by default",
}

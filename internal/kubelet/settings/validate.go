package settings

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// report adds an error about a field: its value and the allowed values.
type report func(field, value, allowed string)

// validate checks the values of fields that work.
func (s *Settings) validate(bad report) {
	c := &s.KubeletConfiguration
	validateNumbers(c, bad)
	validateSpans(c, bad)
	validateEviction(c, bad)
	validateReserved(c, bad)
	validateAddresses(c, bad)
	validateShutdown(c, bad)
	validateGates(c.FeatureGates, bad)
	validateImages(c, bad)
	for i, t := range c.RegisterWithTaints {
		effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
		if t.Key == "" || !slices.Contains(effects, t.Effect) {
			bad("registerWithTaints", fmt.Sprintf("taint %d", i), "a key, and the effect NoSchedule, PreferNoSchedule or NoExecute")
		}
	}
	for field, value := range map[string]string{"containerLogMaxSize": c.ContainerLogMaxSize} {
		if q, err := resource.ParseQuantity(value); err != nil || q.Sign() <= 0 {
			bad(field, quoted(value), "a quantity above 0, such as 10Mi")
		}
	}
	if (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == "") {
		bad("tlsCertFile", quoted(c.TLSCertFile), "given together with tlsPrivateKeyFile")
	}
	if c.ReadOnlyPort != 0 && c.ReadOnlyPort == c.Port {
		bad("readOnlyPort", fmt.Sprint(c.ReadOnlyPort), "another port than that of port")
	}
	for _, err := range tracingv1.ValidateTracingConfiguration(c.Tracing, nil, nil) {
		bad("tracing."+err.Field, fmt.Sprint(err.BadValue), err.Detail)
	}
	var wrong *fault
	if _, _, _, err := s.TLS(0); errors.As(err, &wrong) {
		bad(wrong.field, wrong.value, wrong.allowed)
	}
	oneOf(bad, "memorySwap.swapBehavior", c.MemorySwap.SwapBehavior, "NoSwap", "LimitedSwap")
	oneOf(bad, "authorization.mode", string(c.Authorization.Mode), "Webhook", "AlwaysAllow")
	oneOf(bad, "tlsMinVersion", c.TLSMinVersion, "", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
}

func oneOf(bad report, field, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		bad(field, quoted(value), "one of "+strings.TrimPrefix(strings.Join(allowed, ", "), ", "))
	}
}

func quoted(v string) string { return strconv.Quote(v) }

func validateNumbers(c *kubeletconfig.KubeletConfiguration, bad report) {
	between := func(field string, value, low, high int64) {
		if value < low || value > high {
			bad(field, fmt.Sprint(value), fmt.Sprintf("%d to %d", low, high))
		}
	}
	const most = 1<<31 - 1
	between("port", int64(c.Port), 1, 65535)
	between("readOnlyPort", int64(c.ReadOnlyPort), 0, 65535)
	between("healthzPort", int64(*c.HealthzPort), 0, 65535)
	between("maxPods", int64(c.MaxPods), 1, most)
	between("podsPerCore", int64(c.PodsPerCore), 0, most)
	between("nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 1, most)
	between("nodeStatusMaxImages", int64(*c.NodeStatusMaxImages), -1, most)
	between("registryPullQPS", int64(*c.RegistryPullQPS), 0, most)
	between("registryBurst", int64(c.RegistryBurst), 0, most)
	between("eventRecordQPS", int64(*c.EventRecordQPS), 0, most)
	between("eventBurst", int64(c.EventBurst), 0, most)
	between("oomScoreAdj", int64(*c.OOMScoreAdj), -1000, 1000)
	between("maxOpenFiles", c.MaxOpenFiles, 0, 1<<62)
	between("podPidsLimit", *c.PodPidsLimit, -1, 1<<62)
	between("containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2, most)
	between("containerLogMaxWorkers", int64(*c.ContainerLogMaxWorkers), 1, most)
	between("evictionMaxPodGracePeriod", int64(c.EvictionMaxPodGracePeriod), 0, most)
	high, low := int64(*c.ImageGCHighThresholdPercent), int64(*c.ImageGCLowThresholdPercent)
	between("imageGCHighThresholdPercent", high, 0, 100)
	between("imageGCLowThresholdPercent", low, 0, 100)
	if low >= high {
		bad("imageGCLowThresholdPercent", fmt.Sprint(low), fmt.Sprintf("below imageGCHighThresholdPercent, which is %d", high))
	}
	if n := *c.UserNamespaces.IDsPerPod; n < 65536 || n%65536 != 0 || n >= 1<<32 {
		bad("userNamespaces.idsPerPod", fmt.Sprint(n), "a multiple of 65536 below 4294967296")
	}
	if m := c.MaxParallelImagePulls; m != nil {
		between("maxParallelImagePulls", int64(*m), 1, most)
		if *c.SerializeImagePulls && *m > 1 {
			bad("maxParallelImagePulls", fmt.Sprint(*m), "1 or unset with serializeImagePulls: true")
		}
	}
}

func validateImages(c *kubeletconfig.KubeletConfiguration, bad report) {
	oneOf(bad, "imagePullCredentialsVerificationPolicy", string(c.ImagePullCredentialsVerificationPolicy),
		string(kubeletconfig.NeverVerify), string(kubeletconfig.NeverVerifyPreloadedImages),
		string(kubeletconfig.NeverVerifyAllowlistedImages), string(kubeletconfig.AlwaysVerify))
	const field = "preloadedImagesVerificationAllowlist"
	if len(c.PreloadedImagesVerificationAllowlist) > 0 && c.ImagePullCredentialsVerificationPolicy != kubeletconfig.NeverVerifyAllowlistedImages {
		bad(field, fmt.Sprintf("%d entries", len(c.PreloadedImagesVerificationAllowlist)), "only with imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages")
	}
	for _, entry := range c.PreloadedImagesVerificationAllowlist {
		named, err := reference.ParseNormalizedNamed(strings.TrimSuffix(entry, "/*"))
		if err != nil || !reference.IsNameOnly(named) {
			bad(field, quoted(entry), "an image without tag and digest, or all below a path, such as registry.example.com/team/*")
		}
	}
}

func validateSpans(c *kubeletconfig.KubeletConfiguration, bad report) {
	for field, d := range map[string]time.Duration{
		"fileCheckFrequency": c.FileCheckFrequency.Duration, "httpCheckFrequency": c.HTTPCheckFrequency.Duration,
		"nodeStatusUpdateFrequency": c.NodeStatusUpdateFrequency.Duration, "nodeStatusReportFrequency": c.NodeStatusReportFrequency.Duration,
		"imageMinimumGCAge": c.ImageMinimumGCAge.Duration, "evictionPressureTransitionPeriod": c.EvictionPressureTransitionPeriod.Duration,
		"authentication.webhook.cacheTTL":            c.Authentication.Webhook.CacheTTL.Duration,
		"authorization.webhook.cacheAuthorizedTTL":   c.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		"authorization.webhook.cacheUnauthorizedTTL": c.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
		"containerLogMonitorInterval":                c.ContainerLogMonitorInterval.Duration,
		"runtimeRequestTimeout":                      c.RuntimeRequestTimeout.Duration,
	} {
		if d <= 0 {
			bad(field, d.String(), "more than 0s")
		}
	}
	if d := c.ImageMaximumGCAge.Duration; d != 0 && d <= c.ImageMinimumGCAge.Duration {
		bad("imageMaximumGCAge", d.String(), fmt.Sprintf("0s, or more than imageMinimumGCAge, which is %s", c.ImageMinimumGCAge.Duration))
	}
	if d := c.CPUCFSQuotaPeriod.Duration; d < time.Millisecond || d > time.Second {
		bad("cpuCFSQuotaPeriod", d.String(), "1ms to 1s")
	}
	if d := c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration; d < time.Second || d > 5*time.Minute {
		bad("crashLoopBackOff.maxContainerRestartPeriod", d.String(), "1s to 5m")
	}
}

// Signals are the signals of eviction thresholds.
var Signals = []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available"}

func validateEviction(c *kubeletconfig.KubeletConfiguration, bad report) {
	for field, values := range map[string]map[string]string{
		"evictionHard": c.EvictionHard, "evictionSoft": c.EvictionSoft, "evictionMinimumReclaim": c.EvictionMinimumReclaim,
	} {
		for _, signal := range slices.Sorted(maps.Keys(values)) {
			if !slices.Contains(Signals, signal) {
				bad(field, quoted(signal), "one of the signals "+strings.Join(Signals, ", "))
			} else if !amount(values[signal]) {
				bad(field, quoted(signal+": "+values[signal]), "a quantity such as 100Mi, or a part such as 10%")
			}
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		if _, ok := c.EvictionSoftGracePeriod[signal]; !ok {
			bad("evictionSoftGracePeriod", "without "+signal, "a duration for each signal of evictionSoft")
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoftGracePeriod)) {
		if d, err := time.ParseDuration(c.EvictionSoftGracePeriod[signal]); err != nil || d < 0 || !slices.Contains(Signals, signal) {
			bad("evictionSoftGracePeriod", quoted(signal+": "+c.EvictionSoftGracePeriod[signal]), "SIGNAL: DURATION, such as memory.available: 30s")
		}
	}
}

func amount(value string) bool {
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		v, err := strconv.ParseFloat(percent, 64)
		return err == nil && v >= 0 && v <= 100
	}
	q, err := resource.ParseQuantity(value)
	return err == nil && q.Sign() >= 0
}

func validateReserved(c *kubeletconfig.KubeletConfiguration, bad report) {
	for field, values := range map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		if _, err := Resources(values); err != nil {
			bad(field, err.Error(), "cpu, memory, ephemeral-storage or pid with a quantity, such as cpu: 200m")
		}
	}
	allowed := []string{"none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible"}
	for _, e := range c.EnforceNodeAllocatable {
		switch {
		case !slices.Contains(allowed, e):
			bad("enforceNodeAllocatable", quoted(e), "out of "+strings.Join(allowed, ", "))
		case e == "none" && len(c.EnforceNodeAllocatable) > 1:
			bad("enforceNodeAllocatable", quoted(e), "alone in the list")
		case strings.HasPrefix(e, "system-reserved") && c.SystemReservedCgroup == "":
			bad("enforceNodeAllocatable", quoted(e), "given together with systemReservedCgroup")
		case strings.HasPrefix(e, "kube-reserved") && c.KubeReservedCgroup == "":
			bad("enforceNodeAllocatable", quoted(e), "given together with kubeReservedCgroup")
		case slices.Contains(c.EnforceNodeAllocatable, e+"-compressible"):
			bad("enforceNodeAllocatable", quoted(e), "not together with "+e+"-compressible")
		}
	}
	for field, path := range map[string]string{"kubeReservedCgroup": c.KubeReservedCgroup, "systemReservedCgroup": c.SystemReservedCgroup} {
		if path != "" && (!strings.HasPrefix(path, "/") || path == "/") {
			bad(field, quoted(path), "the path of a cgroup other than /, such as /system.slice")
		}
	}
}

// reservable are the resources that can be reserved. pid is the number of processes.
var reservable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "pid"}

// Resources parses reserved resources.
func Resources(values map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		q, err := resource.ParseQuantity(values[name])
		if err != nil || q.Sign() < 0 || !slices.Contains(reservable, corev1.ResourceName(name)) {
			return nil, fmt.Errorf("%q", name+": "+values[name])
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

func validateAddresses(c *kubeletconfig.KubeletConfiguration, bad report) {
	for field, value := range map[string]string{"address": c.Address, "healthzBindAddress": c.HealthzBindAddress} {
		if _, err := netip.ParseAddr(value); err != nil {
			bad(field, quoted(value), "an IP address")
		}
	}
	for _, ip := range c.ClusterDNS {
		if _, err := netip.ParseAddr(ip); err != nil {
			bad("clusterDNS", quoted(ip), "IP addresses")
		}
	}
}

func validateShutdown(c *kubeletconfig.KubeletConfiguration, bad report) {
	total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	switch {
	case total < 0 || total > 0 && total < time.Second:
		bad("shutdownGracePeriod", total.String(), "0s, or 1s and more")
	case critical < 0 || critical > total || critical > 0 && critical < time.Second:
		bad("shutdownGracePeriodCriticalPods", critical.String(), fmt.Sprintf("0s, or 1s to shutdownGracePeriod, which is %s", total))
	case len(c.ShutdownGracePeriodByPodPriority) > 0 && (total != 0 || critical != 0):
		bad("shutdownGracePeriodByPodPriority", fmt.Sprintf("%d entries", len(c.ShutdownGracePeriodByPodPriority)), "not together with shutdownGracePeriod")
	}
	for _, e := range c.ShutdownGracePeriodByPodPriority {
		if e.ShutdownGracePeriodSeconds < 0 {
			bad("shutdownGracePeriodByPodPriority", fmt.Sprint(e.ShutdownGracePeriodSeconds), "0 seconds or more")
		}
	}
}

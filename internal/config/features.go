package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The feature gates of kube-apiserver v1.36.3, as reported by its metric
// kubernetes_feature_enabled. Those of choiceGates can be turned on; all others cannot be
// changed: a feature exists or not. But installers and charts name many gates, mostly with their
// defaults, which must not keep the server from starting.
const (
	// lockedGates belong to features that are generally available. Upstream does not allow
	// disabling them either.
	lockedGates = `
	APIServerTracing AllowServiceExternalIPs AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors AuthorizeWithSelectors
	BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting CSIServiceAccountTokenSecrets ConsistentListFromCache CustomCPUCFSQuotaPeriod
	CustomResourceFieldSelectors DRAAdminAccess DRAPrioritizedList DeclarativeValidation DisableAllocatorDualWrite DynamicResourceAllocation
	ExecProbeTimeout ExternalServiceAccountTokenSigner ImageMaximumGCAge ImageVolume InOrderInformers InPlacePodVerticalScaling InformerResourceVersion
	JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI
	KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing LogarithmicScaleDown MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator
	MutableCSINodeAllocatableCount MutatingAdmissionPolicy NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap
	OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
	PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts RelaxedDNSSearchValidation
	RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization RetryGenerateName SELinuxChangePolicy SELinuxMountReadWriteOncePod
	SchedulerQueueingHints SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
	ServiceAccountTokenPodNodeInfo SidecarContainers StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
	StructuredAuthenticationConfiguration SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions UserNamespacesSupport
	VolumeAttributesClass WinDSR WinOverlay`
	// onGates and offGates are the other gates, by default.
	onGates = `
	APIResponseCompression APIServerIdentity AggregatedDiscoveryRemoveBetaType AllowParsingUserUIDFromCertAuth AtomicFIFO
	AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions CRDObservedGenerationTracking ClearingNominatedNodeNameAfterBinding
	ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz ComponentStatusz ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules
	ContextualLogging DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
	DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout DeclarativeValidationBeta
	DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion EnvFiles
	ExtendWebSocketsToKubelet GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance HostnameOverride
	InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax
	KubeletEnsureSecretPulledImages KubeletPodResourcesListUseActivePods KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
	ListFromCacheSnapshot LoggingBetaOptions MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
	MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures NominatedNodeNameForExpectation OpenAPIEnums
	OpportunisticBatching PLEGOnDemandRelist PodDeletionCost PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission
	PortForwardWebsockets PreventStaticPodAPIReferences RelaxedServiceNameValidation ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile
	RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits RotateKubeletServerCertificate
	SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction ServiceCIDRStatusFieldWiping SizeBasedListCostEstimate
	StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
	StatefulSetSemanticRevisionComparison StorageNamespaceIndex StorageVersionHash StrictIPCIDRValidation
	StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
	TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
	UnlockWhileProcessingFIFO WatchCacheInitializationPostStartHook WatchList WatchListClient WindowsGracefulNodeShutdown`
	offGates = `
	APIServingWithRoutine AllAlpha AllBeta AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests AllowOverwriteTerminationGracePeriodSeconds
	AllowUnsafeMalformedObjectDeletion CBORServingAndStorage CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth
	ChangeContainerStatusOnKubeletRestart ClientsAllowCBOR ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation
	CloudControllerManagerWebhook ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode ContainerStopSignals
	ControllerManagerReleaseLeaderElectionLockOnExit CoordinatedLeaderElection CrossNamespaceVolumeDataSource DRADeviceTaintRules DRAListTypeAttributes
	DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims DeclarativeValidationTakeover EventedPLEG GangScheduling GenericWorkload
	GitRepoVolumeDriver HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory KMSv1
	KubeletInUserNamespace KubeletRegistrationGetOnExistsOnly LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions
	ManifestBasedAdmissionControlConfig MaxUnavailableStatefulSet MemoryQoS MutablePVNodeAffinity NativeHistograms PersistentVolumeClaimUnusedSinceTime
	PodAndContainerStatsFromCRI PodCertificateRequest PodLevelResourceManagers PodLogsQuerySplitStreams PodsAPI QOSReserved
	ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi SELinuxMount SchedulerAsyncAPICalls SeparateCacheWatchRPC ShardedListAndWatch
	StorageCapacityScoring StorageVersionAPI StorageVersionMigrator TaintTolerationComparisonOperators TopologyAwareWorkloadScheduling
	TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport VolumeLimitScaling WindowsCPUAndMemoryAffinity WindowsHostNetwork
	WorkloadAwarePreemption WorkloadWithJob`
)

// choiceGates are off by default and can be turned on. The value is the gate that each one needs.
var choiceGates = map[string]string{"GenericWorkload": "", "GangScheduling": "GenericWorkload"}

// EnabledGates returns the gates of choiceGates that a valid list of NAME=VALUE turns on. The last
// value of a gate counts.
func EnabledGates(gates []string) []string {
	var on []string
	for _, name := range slices.Sorted(maps.Keys(choiceGates)) {
		enabled := false
		for _, gate := range gates {
			given, text, _ := strings.Cut(strings.TrimPrefix(gate, "kube:"), "=")
			if value, err := strconv.ParseBool(strings.TrimSpace(text)); err == nil && strings.TrimSpace(given) == name {
				enabled = value
			}
		}
		if enabled {
			on = append(on, name)
		}
	}
	return on
}

// FeatureGate returns the value of a feature gate of Kubernetes v1.36 that knarr behaves by.
func FeatureGate(name string) (on, known bool) {
	switch {
	case slices.Contains(strings.Fields(lockedGates), name), slices.Contains(strings.Fields(onGates), name):
		return true, true
	case slices.Contains(strings.Fields(offGates), name):
		return false, true
	}
	return false, false
}

// validateFeatureGates accepts only the defaults, and choiceGates with the gates that they need.
// Error texts are upstream's where upstream refuses the gate too.
func validateFeatureGates(gates []string, bad func(field, value, allowed string)) {
	locked, on, off := strings.Fields(lockedGates), strings.Fields(onGates), strings.Fields(offGates)
	enabled := EnabledGates(gates)
	for _, gate := range gates {
		refuse := func(format string, args ...any) { bad("feature-gates", gate, fmt.Sprintf(format, args...)) }
		component, setting, ok := strings.Cut(gate, ":")
		if !ok {
			component, setting = "kube", gate
		}
		name, text, given := strings.Cut(setting, "=")
		name = strings.TrimSpace(name)
		value, err := strconv.ParseBool(strings.TrimSpace(text))
		isOff := slices.Contains(off, name)
		_, isChoice := choiceGates[name]
		switch {
		case component != "kube":
			refuse("component not registered: %s", component)
		case !given:
			refuse("missing bool value for %s", name)
		case err != nil:
			refuse("true or false: invalid value of %s", name)
		case slices.Contains(locked, name):
			if !value {
				refuse("cannot set feature gate %s to false, feature is locked to true", name)
			}
		case !isOff && !slices.Contains(on, name):
			refuse("a feature gate of Kubernetes v1.36: unrecognized feature gate: %s", name)
		case value && isChoice:
			if needed := choiceGates[name]; needed != "" && !slices.Contains(enabled, needed) {
				refuse("%s=true beside %s=true", needed, name)
			}
		case value == isOff:
			refuse("%s=%v, as by default: this server has no other way to be", name, !value)
		}
	}
}

package openapi

// What the Go types don't say and upstream's generator reads from comments. The test against upstream's published documents finds
// what is missing here.

// optionalFields are always written in JSON and need not be given all the same (+optional).
var optionalFields = map[string][]string{
	"io.k8s.api.apps.v1.StatefulSetOrdinals":                      {"start"},
	"io.k8s.api.apps.v1.StatefulSetSpec":                          {"serviceName"},
	"io.k8s.api.apps.v1.StatefulSetStatus":                        {"availableReplicas"},
	"io.k8s.api.authentication.v1.TokenRequest":                   {"spec"},
	"io.k8s.api.authentication.v1.TokenRequestSpec":               {"audiences", "boundObjectRef", "expirationSeconds"},
	"io.k8s.api.authentication.v1.TokenRequestStatus":             {"expirationTimestamp", "token"},
	"io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus":     {"currentMetrics"},
	"io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern":  {"status"},
	"io.k8s.api.core.v1.AzureFilePersistentVolumeSource":          {"secretNamespace"},
	"io.k8s.api.core.v1.ContainerImage":                           {"names"},
	"io.k8s.api.core.v1.Event":                                    {"reportingComponent", "reportingInstance"},
	"io.k8s.api.core.v1.GRPCAction":                               {"service"},
	"io.k8s.api.core.v1.NodeRuntimeHandler":                       {"name"},
	"io.k8s.api.core.v1.PodExecOptions":                           {"command"},
	"io.k8s.api.core.v1.ProjectedVolumeSource":                    {"sources"},
	"io.k8s.api.core.v1.TypedLocalObjectReference":                {"apiGroup"},
	"io.k8s.api.core.v1.TypedObjectReference":                     {"apiGroup"},
	"io.k8s.api.discovery.v1.EndpointSlice":                       {"endpoints", "ports"},
	"io.k8s.api.events.v1.Event":                                  {"metadata"},
	"io.k8s.api.flowcontrol.v1.FlowSchemaSpec":                    {"matchingPrecedence"},
	"io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration": {"nominalConcurrencyShares"},
	"io.k8s.api.flowcontrol.v1.QueuingConfiguration":              {"handSize", "queueLengthLimit", "queues"},
	"io.k8s.api.flowcontrol.v1.ResourcePolicyRule":                {"namespaces"},
	"io.k8s.api.networking.v1.IngressClassParametersReference":    {"scope"},
	"io.k8s.api.networking.v1.NetworkPolicySpec":                  {"podSelector"},
	"io.k8s.api.policy.v1.PodDisruptionBudgetStatus":              {"currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"},
	"io.k8s.api.rbac.v1.ClusterRole":                              {"rules"},
	"io.k8s.api.rbac.v1.Role":                                     {"rules"},
	"io.k8s.api.rbac.v1.RoleRef":                                  {"apiGroup"},
	"io.k8s.api.resource.v1.AllocatedDeviceStatus":                {"conditions"},
	"io.k8s.api.resource.v1.CapacityRequestPolicy":                {"default"},
	"io.k8s.api.resource.v1.DeviceClaim":                          {"requests"},
	"io.k8s.api.resource.v1.ResourceClaimSpec":                    {"devices"},
	"io.k8s.api.scheduling.v1.PriorityClass":                      {"value"},
	"io.k8s.api.storage.v1.CSINodeDriver":                         {"topologyKeys"},
}

// requiredFields must be given although JSON leaves them out when empty (+required).
var requiredFields = map[string][]string{
	"io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding":     {"spec"},
	"io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec": {"policyName", "validationActions"},
	"io.k8s.api.authentication.v1.TokenReviewSpec":                             {"token"},
	"io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler":                        {"spec"},
	"io.k8s.api.batch.v1.CronJob":                                              {"spec"},
	"io.k8s.api.core.v1.ContainerRestartRule":                                  {"action"},
	"io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes":                       {"operator"},
	"io.k8s.api.core.v1.ImageVolumeStatus":                                     {"imageRef"},
	"io.k8s.api.core.v1.PodCertificateProjection":                              {"keyType", "signerName"},
	"io.k8s.api.networking.v1.IPAddress":                                       {"spec"},
	"io.k8s.api.networking.v1.IPAddressSpec":                                   {"parentRef"},
	"io.k8s.api.networking.v1.ParentReference":                                 {"name", "resource"},
	"io.k8s.api.resource.v1.CapacityRequestPolicyRange":                        {"min"},
	"io.k8s.api.resource.v1.CounterSet":                                        {"counters"},
	"io.k8s.api.resource.v1.DeviceCounterConsumption":                          {"counters"},
}

// granularFields are maps and structs whose fields have owners each, said in so many words (+mapType=granular).
var granularFields = map[string][]string{
	"io.k8s.api.core.v1.PersistentVolumeClaimStatus": {"allocatedResourceStatuses"},
	"io.k8s.api.core.v1.PersistentVolumeSpec":        {"claimRef"},
}

// atomicLists are types that nobody applies and whose lists say all the same that they are atomic.
var atomicLists = map[string]bool{
	"io.k8s.api.authentication.v1.TokenRequestSpec":        true,
	"io.k8s.api.authentication.v1.TokenReviewSpec":         true,
	"io.k8s.api.authentication.v1.TokenReviewStatus":       true,
	"io.k8s.api.authentication.v1.UserInfo":                true,
	"io.k8s.api.authorization.v1.FieldSelectorAttributes":  true,
	"io.k8s.api.authorization.v1.LabelSelectorAttributes":  true,
	"io.k8s.api.authorization.v1.NonResourceRule":          true,
	"io.k8s.api.authorization.v1.ResourceRule":             true,
	"io.k8s.api.authorization.v1.SubjectAccessReviewSpec":  true,
	"io.k8s.api.authorization.v1.SubjectRulesReviewStatus": true,
}

// plainObjects are structs that are any object in JSON; they have no default.
var plainObjects = map[string]bool{
	"io.k8s.apimachinery.pkg.runtime.RawExtension":  true,
	"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": true,
}

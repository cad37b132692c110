package openapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Facts that upstream's generator reads from comments, which the Go types do not contain. The test
// against upstream's published documents finds missing ones.

// optionsOnly are group versions without resources that all documents nevertheless list at
// DeleteOptions: those of admission reviews, and an old one.
var optionsOnly = []schema.GroupVersion{
	{Group: "admission.k8s.io", Version: "v1"},
	{Group: "admission.k8s.io", Version: "v1beta1"},
	{Group: "apiregistration.k8s.io", Version: "v1beta1"},
	{Group: "imagepolicy.k8s.io", Version: "v1alpha1"},
}

// metricsGroup occurs only in its own document: in upstream's clusters an extension server serves
// it.
const metricsGroup = "metrics.k8s.io"

// optionalFields are always present in JSON but need not be set (+optional).
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

// requiredFields must be set although JSON omits them when empty (+required).
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

// fieldDocs repairs descriptions in the generated Go documentation: it stops at a line of dashes or
// of a drawing, lacks backslashes, and lacks one field.
var fieldDocs = map[string]docFix{
	"io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec.validationActions": {
		old: `"[{"message": "Invalid value", {"policy": "policy.example.com", {"binding": "policybinding.example.com", {"expressionIndex": "1", {"validationActions": ["Audit"]}]"`,
		new: `"[{\"message\": \"Invalid value\", {\"policy\": \"policy.example.com\", {\"binding\": \"policybinding.example.com\", {\"expressionIndex\": \"1\", {\"validationActions\": [\"Audit\"]}]"`},
	"io.k8s.api.certificates.v1.CertificateSigningRequestStatus.certificate": {
		rest: "\n    -----BEGIN CERTIFICATE-----\n    ...\n    -----END CERTIFICATE-----\n    )"},
	"io.k8s.api.core.v1.PodSecurityContext.fsGroup": {
		rest: "----\n\nIf unset, the Kubelet will not modify the ownership and permissions of any volume. Note that this field cannot be set when spec.os.name is windows."},
	"io.k8s.api.core.v1.PodSpec.setHostnameAsFQDN": {old: `\`, new: `\\`},
	"io.k8s.api.core.v1.TopologySpreadConstraint.maxSkew": {
		rest: " | zone1 | zone2 | zone3 | |  P P  |  P P  |   P   | - if MaxSkew is 1, incoming pod can only be scheduled to zone3 to become 2/2/2; " +
			"scheduling it onto zone1(zone2) would make the ActualSkew(3-1) on zone1(zone2) violate MaxSkew(1). - if MaxSkew is 2, incoming pod can be scheduled onto any zone. " +
			"When `whenUnsatisfiable=ScheduleAnyway`, it is used to give higher precedence to topologies that satisfy it. It's a required field. Default value is 1 and 0 is not allowed."},
	"io.k8s.api.core.v1.TopologySpreadConstraint.minDomains": {
		rest: " | zone1 | zone2 | zone3 | |  P P  |  P P  |  P P  | The number of domains is less than 5(MinDomains), so \"global minimum\" is treated as 0. " +
			"In this situation, new pod with the same labelSelector cannot be scheduled, because computed skew will be 3(3 - 0) if new Pod is scheduled to any of the three zones, it will violate MaxSkew."},
	"io.k8s.api.core.v1.TopologySpreadConstraint.whenUnsatisfiable": {
		rest: " | zone1 | zone2 | zone3 | | P P P |   P   |   P   | If WhenUnsatisfiable is set to DoNotSchedule, incoming pod can only be scheduled to zone2(zone3) to become 3/2/1(3/1/2) " +
			"as ActualSkew(2-1) on zone2(zone3) satisfies MaxSkew(1). In other words, the cluster can still be imbalanced, but scheduler won't make it *more* imbalanced. It's a required field."},
	"io.k8s.api.storage.v1.VolumeAttachmentSource.inlineVolumeSpec": {
		rest: "inlineVolumeSpec contains all the information necessary to attach a persistent volume defined by a pod's inline VolumeSource. This field is populated only for the CSIMigration feature. " +
			"It contains translated fields from a pod's inline VolumeSource to a PersistentVolumeSpec. This field is beta-level and is only honored by servers that enabled the CSIMigration feature."},
}

// docFix repairs a description: it replaces old by new and appends rest.
type docFix struct{ old, new, rest string }

// fieldDoc returns the description of a field, given the generated one.
func fieldDoc(field, doc string) string {
	fix, ok := fieldDocs[field]
	if !ok {
		return doc
	}
	if fix.old != "" {
		doc = strings.ReplaceAll(doc, fix.old, fix.new)
	}
	if fix.rest != "" {
		doc = strings.TrimRight(doc, " ") + fix.rest
	}
	return doc
}

// granularFields are maps and structs explicitly marked as having an owner per field
// (+mapType=granular).
var granularFields = map[string][]string{
	"io.k8s.api.core.v1.PersistentVolumeClaimStatus": {"allocatedResourceStatuses"},
	"io.k8s.api.core.v1.PersistentVolumeSpec":        {"claimRef"},
}

// atomicLists are types with lists that upstream marks atomic, although clients never apply them.
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

// plainObjects are structs that can be any JSON object; they have no default.
var plainObjects = map[string]bool{
	"io.k8s.apimachinery.pkg.runtime.RawExtension":  true,
	"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": true,
}

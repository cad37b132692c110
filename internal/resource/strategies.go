// Package resource holds the behaviour of each built-in kind: defaults, validation, update rules,
// selectable fields and printer columns. Everything is a pure function without I/O or clock. The
// rules come from the API reference and the comments of k8s.io/api.
//
// Words. A strategy is the behaviour of one kind. The hub type is the Go type of a kind's one
// version in memory (docs/adr/0014-one-table-of-kinds.md).
//
// In: a decoded object, and the stored one in updates. Out: the prepared object, field errors,
// warnings, table rows.
package resource

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// strategies maps every kind to its behaviour.
var strategies = map[schema.GroupResource]*strategy.Strategy{
	{Resource: "pods"}:                                                                     podStrategy(),
	{Resource: "services"}:                                                                 serviceStrategy(),
	{Resource: "namespaces"}:                                                               namespaceStrategy(),
	{Resource: "nodes"}:                                                                    nodeStrategy(),
	{Resource: "events"}:                                                                   eventStrategy(),
	{Resource: "secrets"}:                                                                  secretStrategy(),
	{Resource: "configmaps"}:                                                               configMapStrategy(),
	{Resource: "serviceaccounts"}:                                                          serviceAccountStrategy(),
	{Resource: "endpoints"}:                                                                endpointsStrategy(),
	{Resource: "limitranges"}:                                                              limitRangeStrategy(),
	{Resource: "resourcequotas"}:                                                           resourceQuotaStrategy(),
	{Resource: "podtemplates"}:                                                             podTemplateStrategy(),
	{Resource: "replicationcontrollers"}:                                                   replicationControllerStrategy(),
	{Resource: "persistentvolumeclaims"}:                                                   claimStrategy(),
	{Resource: "persistentvolumes"}:                                                        persistentVolumeStrategy(),
	{Group: "apps", Resource: "deployments"}:                                               deploymentStrategy(),
	{Group: "apps", Resource: "daemonsets"}:                                                daemonSetStrategy(),
	{Group: "apps", Resource: "statefulsets"}:                                              statefulSetStrategy(),
	{Group: "apps", Resource: "replicasets"}:                                               replicaSetStrategy(),
	{Group: "apps", Resource: "controllerrevisions"}:                                       controllerRevisionStrategy(),
	{Group: "events.k8s.io", Resource: "events"}:                                           newEventStrategy(),
	{Group: "batch", Resource: "jobs"}:                                                     jobStrategy(),
	{Group: "batch", Resource: "cronjobs"}:                                                 cronJobStrategy(),
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}:                           autoscalerStrategy(),
	{Group: "policy", Resource: "poddisruptionbudgets"}:                                    disruptionBudgetStrategy(),
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:                                roleStrategy(),
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:                         clusterRoleStrategy(),
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}:                         roleBindingStrategy(),
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}:                  clusterRoleBindingStrategy(),
	{Group: "networking.k8s.io", Resource: "ingresses"}:                                    ingressStrategy(),
	{Group: "networking.k8s.io", Resource: "ingressclasses"}:                               ingressClassStrategy(),
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:                              networkPolicyStrategy(),
	{Group: "networking.k8s.io", Resource: "ipaddresses"}:                                  ipAddressStrategy(),
	{Group: "networking.k8s.io", Resource: "servicecidrs"}:                                 serviceCIDRStrategy(),
	{Group: "discovery.k8s.io", Resource: "endpointslices"}:                                endpointSliceStrategy(),
	{Group: "storage.k8s.io", Resource: "storageclasses"}:                                  storageClassStrategy(),
	{Group: "storage.k8s.io", Resource: "csidrivers"}:                                      csiDriverStrategy(),
	{Group: "storage.k8s.io", Resource: "csinodes"}:                                        csiNodeStrategy(),
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:                            csiStorageCapacityStrategy(),
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                               volumeAttachmentStrategy(),
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}:                         volumeAttributesStrategy(),
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:                              priorityClassStrategy(),
	{Group: "coordination.k8s.io", Resource: "leases"}:                                     leaseStrategy(),
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:                                     runtimeClassStrategy(),
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:                 certificateRequestStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}:   validatingWebhooksStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:     mutatingWebhooksStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       validatingPolicyStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: validatingPolicyBindingStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}:         mutatingPolicyStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}:   mutatingPolicyBindingStrategy(),
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:                 customResourceDefinitionStrategy(),
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                             apiServiceStrategy(),
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}:                       flowSchemaStrategy(),
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}:       priorityLevelStrategy(),
	{Group: "resource.k8s.io", Resource: "deviceclasses"}:                                  deviceClassStrategy(),
	{Group: "resource.k8s.io", Resource: "resourceslices"}:                                 resourceSliceStrategy(),
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:                                 resourceClaimStrategy(),
	{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}:                         resourceClaimTemplateStrategy(),
	{Resource: "componentstatuses"}:                                                        componentStatusStrategy(),
	{Group: "metrics.k8s.io", Resource: "nodes"}:                                           nodeMetricsStrategy(),
	{Group: "metrics.k8s.io", Resource: "pods"}:                                            podMetricsStrategy(),
}

// Scales is the table of the scale subresource of every kind.
var Scales = scaleStrategy()

// Package resource holds the behaviour of each built-in kind: defaults, validation, update rules,
// selectable fields and printer columns. Everything is a pure function without I/O or clock. The
// rules come from the API reference and the comments of k8s.io/api.
//
// This package is the list of strategies. A kind's strategy is in the package of its API group
// (apps, batch, core, ...; resource.k8s.io is dra), in files named after the kind: role.go, or
// service.go and service_validation.go. Two things are elsewhere: pods and pod templates are in
// pods; volumes, their claims and their sources are in storage. What the groups share is in
// strategy, columns and validate.
//
// Words. A strategy is the behaviour of one kind. The hub type is the Go type of a kind's one
// version in memory (docs/adr/0014-one-table-of-kinds.md).
//
// In: a decoded object, and the stored one in updates. Out: the prepared object, field errors,
// warnings, table rows.
package resource

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/resource/admissionregistration"
	"github.com/knarr-project/knarr/internal/resource/apiextensions"
	"github.com/knarr-project/knarr/internal/resource/apiregistration"
	"github.com/knarr-project/knarr/internal/resource/apps"
	"github.com/knarr-project/knarr/internal/resource/autoscaling"
	"github.com/knarr-project/knarr/internal/resource/batch"
	"github.com/knarr-project/knarr/internal/resource/certificates"
	"github.com/knarr-project/knarr/internal/resource/coordination"
	"github.com/knarr-project/knarr/internal/resource/core"
	"github.com/knarr-project/knarr/internal/resource/discovery"
	"github.com/knarr-project/knarr/internal/resource/dra"
	"github.com/knarr-project/knarr/internal/resource/flowcontrol"
	"github.com/knarr-project/knarr/internal/resource/metrics"
	"github.com/knarr-project/knarr/internal/resource/networking"
	"github.com/knarr-project/knarr/internal/resource/node"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/policy"
	"github.com/knarr-project/knarr/internal/resource/rbac"
	"github.com/knarr-project/knarr/internal/resource/scheduling"
	"github.com/knarr-project/knarr/internal/resource/storage"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// For returns the strategy of a kind, or nil; every stored row of api.Kinds has one. Its functions
// take the kind's hub type. A kind that shows another kind's objects (api.Kind.Alias) has its own
// strategy, whose functions take the other kind's hub type.
func For(gr schema.GroupResource) *strategy.Strategy { return WithGates(gr, nil) }

// WithGates is like For, on a server where these feature gates are on besides the default ones.
func WithGates(gr schema.GroupResource, gates []string) *strategy.Strategy {
	if s := strategies[gr]; s != nil {
		return s.With(gates)
	}
	return nil
}

// strategies maps every kind to its behaviour.
var strategies = map[schema.GroupResource]*strategy.Strategy{
	{Resource: "pods"}:                                                                     pods.Strategy(),
	{Resource: "services"}:                                                                 core.ServiceStrategy(),
	{Resource: "namespaces"}:                                                               core.NamespaceStrategy(),
	{Resource: "nodes"}:                                                                    core.NodeStrategy(),
	{Resource: "events"}:                                                                   core.EventStrategy(),
	{Resource: "secrets"}:                                                                  core.SecretStrategy(),
	{Resource: "configmaps"}:                                                               core.ConfigMapStrategy(),
	{Resource: "serviceaccounts"}:                                                          core.ServiceAccountStrategy(),
	{Resource: "endpoints"}:                                                                core.EndpointsStrategy(),
	{Resource: "limitranges"}:                                                              core.LimitRangeStrategy(),
	{Resource: "resourcequotas"}:                                                           core.ResourceQuotaStrategy(),
	{Resource: "podtemplates"}:                                                             core.PodTemplateStrategy(),
	{Resource: "replicationcontrollers"}:                                                   core.ReplicationControllerStrategy(),
	{Resource: "persistentvolumeclaims"}:                                                   storage.ClaimStrategy(),
	{Resource: "persistentvolumes"}:                                                        storage.PersistentVolumeStrategy(),
	{Group: "apps", Resource: "deployments"}:                                               apps.DeploymentStrategy(),
	{Group: "apps", Resource: "daemonsets"}:                                                apps.DaemonSetStrategy(),
	{Group: "apps", Resource: "statefulsets"}:                                              apps.StatefulSetStrategy(),
	{Group: "apps", Resource: "replicasets"}:                                               apps.ReplicaSetStrategy(),
	{Group: "apps", Resource: "controllerrevisions"}:                                       apps.ControllerRevisionStrategy(),
	{Group: "events.k8s.io", Resource: "events"}:                                           core.EventsGroupStrategy(),
	{Group: "batch", Resource: "jobs"}:                                                     batch.JobStrategy(),
	{Group: "batch", Resource: "cronjobs"}:                                                 batch.CronJobStrategy(),
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}:                           autoscaling.AutoscalerStrategy(),
	{Group: "policy", Resource: "poddisruptionbudgets"}:                                    policy.DisruptionBudgetStrategy(),
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:                                rbac.RoleStrategy(),
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:                         rbac.ClusterRoleStrategy(),
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}:                         rbac.RoleBindingStrategy(),
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}:                  rbac.ClusterRoleBindingStrategy(),
	{Group: "networking.k8s.io", Resource: "ingresses"}:                                    networking.IngressStrategy(),
	{Group: "networking.k8s.io", Resource: "ingressclasses"}:                               networking.IngressClassStrategy(),
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:                              networking.NetworkPolicyStrategy(),
	{Group: "networking.k8s.io", Resource: "ipaddresses"}:                                  networking.IPAddressStrategy(),
	{Group: "networking.k8s.io", Resource: "servicecidrs"}:                                 networking.ServiceCIDRStrategy(),
	{Group: "discovery.k8s.io", Resource: "endpointslices"}:                                discovery.EndpointSliceStrategy(),
	{Group: "storage.k8s.io", Resource: "storageclasses"}:                                  storage.StorageClassStrategy(),
	{Group: "storage.k8s.io", Resource: "csidrivers"}:                                      storage.CSIDriverStrategy(),
	{Group: "storage.k8s.io", Resource: "csinodes"}:                                        storage.CSINodeStrategy(),
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:                            storage.CSIStorageCapacityStrategy(),
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                               storage.VolumeAttachmentStrategy(),
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}:                         storage.VolumeAttributesStrategy(),
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:                              scheduling.PriorityClassStrategy(),
	{Group: "scheduling.k8s.io", Resource: "workloads"}:                                    scheduling.WorkloadStrategy(),
	{Group: "scheduling.k8s.io", Resource: "podgroups"}:                                    scheduling.PodGroupStrategy(),
	{Group: "coordination.k8s.io", Resource: "leases"}:                                     coordination.LeaseStrategy(),
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:                                     node.RuntimeClassStrategy(),
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:                 certificates.CertificateRequestStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}:   admissionregistration.ValidatingWebhooksStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:     admissionregistration.MutatingWebhooksStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       admissionregistration.ValidatingPolicyStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: admissionregistration.ValidatingPolicyBindingStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}:         admissionregistration.MutatingPolicyStrategy(),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}:   admissionregistration.MutatingPolicyBindingStrategy(),
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:                 apiextensions.CustomResourceDefinitionStrategy(),
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                             apiregistration.APIServiceStrategy(),
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}:                       flowcontrol.FlowSchemaStrategy(),
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}:       flowcontrol.PriorityLevelStrategy(),
	{Group: "resource.k8s.io", Resource: "deviceclasses"}:                                  dra.DeviceClassStrategy(),
	{Group: "resource.k8s.io", Resource: "resourceslices"}:                                 dra.ResourceSliceStrategy(),
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:                                 dra.ResourceClaimStrategy(),
	{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}:                         dra.ResourceClaimTemplateStrategy(),
	{Resource: "componentstatuses"}:                                                        core.ComponentStatusStrategy(),
	{Group: "metrics.k8s.io", Resource: "nodes"}:                                           metrics.NodeMetricsStrategy(),
	{Group: "metrics.k8s.io", Resource: "pods"}:                                            metrics.PodMetricsStrategy(),
}

package resource

import "k8s.io/apimachinery/pkg/runtime/schema"

// loose lets finalizers of no domain through, as the kinds do that never had them.
func loose(s *Strategy) *Strategy {
	s.LooseFinalizers = true
	return s
}

// strategies lists every kind's behaviour.
var strategies = map[schema.GroupResource]*Strategy{
	{Resource: "pods"}:                                                                     show(makesPods(podStrategy()), podColumns, podRow),
	{Resource: "services"}:                                                                 show(serviceStrategy(), serviceColumns, serviceRow),
	{Resource: "namespaces"}:                                                               show(namespaceStrategy(), namespaceColumns, namespaceRow),
	{Resource: "nodes"}:                                                                    show(nodeStrategy(), nodeColumns, nodeRow),
	{Resource: "events"}:                                                                   show(loose(eventStrategy()), eventColumns, eventRow),
	{Resource: "secrets"}:                                                                  show(secretStrategy(), secretColumns, secretRow),
	{Resource: "configmaps"}:                                                               show(configMapStrategy(), configMapColumns, configMapRow),
	{Resource: "serviceaccounts"}:                                                          show(serviceAccountStrategy(), serviceAccountColumns, serviceAccountRow),
	{Resource: "endpoints"}:                                                                show(endpointsStrategy(), endpointsColumns, endpointsRow),
	{Resource: "limitranges"}:                                                              showAny(limitRangeStrategy(), createdColumns, createdRow),
	{Resource: "resourcequotas"}:                                                           show(resourceQuotaStrategy(), resourceQuotaColumns, resourceQuotaRow),
	{Resource: "podtemplates"}:                                                             show(makesPods(podTemplateStrategy()), podTemplateColumns, podTemplateRow),
	{Resource: "replicationcontrollers"}:                                                   show(makesPods(replicationControllerStrategy()), replicationControllerColumns, replicationControllerRow),
	{Resource: "persistentvolumeclaims"}:                                                   show(claimStrategy(), claimColumns, claimRow),
	{Resource: "persistentvolumes"}:                                                        show(persistentVolumeStrategy(), persistentVolumeColumns, persistentVolumeRow),
	{Group: "apps", Resource: "deployments"}:                                               show(makesPods(deploymentStrategy()), deploymentColumns, deploymentRow),
	{Group: "apps", Resource: "daemonsets"}:                                                show(makesPods(daemonSetStrategy()), daemonSetColumns, daemonSetRow),
	{Group: "apps", Resource: "statefulsets"}:                                              show(makesPods(statefulSetStrategy()), statefulSetColumns, statefulSetRow),
	{Group: "apps", Resource: "replicasets"}:                                               show(makesPods(replicaSetStrategy()), replicaSetColumns, replicaSetRow),
	{Group: "apps", Resource: "controllerrevisions"}:                                       show(controllerRevisionStrategy(), controllerRevisionColumns, controllerRevisionRow),
	{Group: "events.k8s.io", Resource: "events"}:                                           show(newEventStrategy(), eventColumns, eventRow),
	{Group: "batch", Resource: "jobs"}:                                                     show(makesPods(jobStrategy()), jobColumns, jobRow),
	{Group: "batch", Resource: "cronjobs"}:                                                 show(makesPods(cronJobStrategy()), cronJobColumns, cronJobRow),
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}:                           show(autoscalerStrategy(), autoscalerColumns, autoscalerRow),
	{Group: "policy", Resource: "poddisruptionbudgets"}:                                    show(loose(disruptionBudgetStrategy()), disruptionBudgetColumns, disruptionBudgetRow),
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:                                showAny(roleStrategy(), createdColumns, createdRow),
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:                         showAny(clusterRoleStrategy(), createdColumns, createdRow),
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}:                         show(roleBindingStrategy(), roleBindingColumns, roleBindingRow),
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}:                  show(clusterRoleBindingStrategy(), clusterRoleBindingColumns, clusterRoleBindingRow),
	{Group: "networking.k8s.io", Resource: "ingresses"}:                                    show(ingressStrategy(), ingressColumns, ingressRow),
	{Group: "networking.k8s.io", Resource: "ingressclasses"}:                               show(ingressClassStrategy(), ingressClassColumns, ingressClassRow),
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:                              show(networkPolicyStrategy(), networkPolicyColumns, networkPolicyRow),
	{Group: "networking.k8s.io", Resource: "ipaddresses"}:                                  show(ipAddressStrategy(), ipAddressColumns, ipAddressRow),
	{Group: "networking.k8s.io", Resource: "servicecidrs"}:                                 show(serviceCIDRStrategy(), serviceCIDRColumns, serviceCIDRRow),
	{Group: "discovery.k8s.io", Resource: "endpointslices"}:                                show(endpointSliceStrategy(), endpointSliceColumns, endpointSliceRow),
	{Group: "storage.k8s.io", Resource: "storageclasses"}:                                  show(storageClassStrategy(), storageClassColumns, storageClassRow),
	{Group: "storage.k8s.io", Resource: "csidrivers"}:                                      show(csiDriverStrategy(), csiDriverColumns, csiDriverRow),
	{Group: "storage.k8s.io", Resource: "csinodes"}:                                        show(csiNodeStrategy(), csiNodeColumns, csiNodeRow),
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:                            showAny(csiStorageCapacityStrategy(), createdColumns, createdRow),
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                               show(volumeAttachmentStrategy(), volumeAttachmentColumns, volumeAttachmentRow),
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}:                         show(volumeAttributesStrategy(), volumeAttributesColumns, volumeAttributesRow),
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:                              show(priorityClassStrategy(), priorityClassColumns, priorityClassRow),
	{Group: "coordination.k8s.io", Resource: "leases"}:                                     show(loose(leaseStrategy()), leaseColumns, leaseRow),
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:                                     show(loose(runtimeClassStrategy()), runtimeClassColumns, runtimeClassRow),
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:                 show(certificateRequestStrategy(), certificateRequestColumns, certificateRequestRow),
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}:   show(loose(validatingWebhooksStrategy()), webhooksColumns, validatingWebhooksRow),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:     show(loose(mutatingWebhooksStrategy()), webhooksColumns, mutatingWebhooksRow),
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       show(loose(validatingPolicyStrategy()), validatingPolicyColumns, validatingPolicyRow),
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: show(loose(validatingPolicyBindingStrategy()), policyBindingColumns, validatingPolicyBindingRow),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}:         show(loose(mutatingPolicyStrategy()), mutatingPolicyColumns, mutatingPolicyRow),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}:   show(loose(mutatingPolicyBindingStrategy()), policyBindingColumns, mutatingPolicyBindingRow),
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:                 showAny(loose(customResourceDefinitionStrategy()), createdColumns, createdRow),
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                             show(loose(apiServiceStrategy()), apiServiceColumns, apiServiceRow),
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}:                       show(flowSchemaStrategy(), flowSchemaColumns, flowSchemaRow),
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}:       show(priorityLevelStrategy(), priorityLevelColumns, priorityLevelRow),
	{Group: "resource.k8s.io", Resource: "deviceclasses"}:                                  showAny(deviceClassStrategy(), ageColumns, ageRow),
	{Group: "resource.k8s.io", Resource: "resourceslices"}:                                 show(resourceSliceStrategy(), resourceSliceColumns, resourceSliceRow),
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:                                 show(resourceClaimStrategy(), resourceClaimColumns, resourceClaimRow),
	{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}:                         showAny(resourceClaimTemplateStrategy(), ageColumns, ageRow),
	{Resource: "componentstatuses"}:                                                        show(&Strategy{}, componentStatusColumns, componentStatusRow),
	{Group: "metrics.k8s.io", Resource: "nodes"}:                                           show(&Strategy{}, nodeMetricsColumns, nodeMetricsRow),
	{Group: "metrics.k8s.io", Resource: "pods"}:                                            show(&Strategy{}, podMetricsColumns, podMetricsRow),
}

// Scales is how the scale subresources of all kinds show.
var Scales = show(&Strategy{}, scaleColumns, scaleRow)

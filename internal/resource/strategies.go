package resource

import "k8s.io/apimachinery/pkg/runtime/schema"

// loose accepts finalizers without a domain. It is for kinds whose upstream validation never
// checked them.
func loose(s *Strategy) *Strategy {
	s.LooseFinalizers = true
	return s
}

// renames checks generateName in updates as in creates.
func renames(s *Strategy) *Strategy {
	s.NameRuleOnUpdate = true
	return s
}

// strategies maps every kind to its behaviour.
var strategies = map[schema.GroupResource]*Strategy{
	{Resource: "pods"}:                                                                     show(renames(makesPods(podStrategy())), podColumns, podRow),
	{Resource: "services"}:                                                                 show(serviceStrategy(), serviceColumns, serviceRow),
	{Resource: "namespaces"}:                                                               show(renames(namespaceStrategy()), namespaceColumns, namespaceRow),
	{Resource: "nodes"}:                                                                    show(renames(nodeStrategy()), nodeColumns, nodeRow),
	{Resource: "events"}:                                                                   show(loose(eventStrategy()), eventColumns, eventRow),
	{Resource: "secrets"}:                                                                  show(renames(secretStrategy()), secretColumns, secretRow),
	{Resource: "configmaps"}:                                                               show(renames(configMapStrategy()), configMapColumns, configMapRow),
	{Resource: "serviceaccounts"}:                                                          show(renames(serviceAccountStrategy()), serviceAccountColumns, serviceAccountRow),
	{Resource: "endpoints"}:                                                                show(renames(endpointsStrategy()), endpointsColumns, endpointsRow),
	{Resource: "limitranges"}:                                                              showAny(renames(limitRangeStrategy()), createdColumns, createdRow),
	{Resource: "resourcequotas"}:                                                           show(resourceQuotaStrategy(), resourceQuotaColumns, resourceQuotaRow),
	{Resource: "podtemplates"}:                                                             show(makesPods(podTemplateStrategy()), podTemplateColumns, podTemplateRow),
	{Resource: "replicationcontrollers"}:                                                   show(makesPods(replicationControllerStrategy()), replicationControllerColumns, replicationControllerRow),
	{Resource: "persistentvolumeclaims"}:                                                   show(renames(claimStrategy()), claimColumns, claimRow),
	{Resource: "persistentvolumes"}:                                                        show(renames(persistentVolumeStrategy()), persistentVolumeColumns, persistentVolumeRow),
	{Group: "apps", Resource: "deployments"}:                                               show(makesPods(deploymentStrategy()), deploymentColumns, deploymentRow),
	{Group: "apps", Resource: "daemonsets"}:                                                show(makesPods(daemonSetStrategy()), daemonSetColumns, daemonSetRow),
	{Group: "apps", Resource: "statefulsets"}:                                              show(makesPods(statefulSetStrategy()), statefulSetColumns, statefulSetRow),
	{Group: "apps", Resource: "replicasets"}:                                               show(makesPods(replicaSetStrategy()), replicaSetColumns, replicaSetRow),
	{Group: "apps", Resource: "controllerrevisions"}:                                       show(renames(controllerRevisionStrategy()), controllerRevisionColumns, controllerRevisionRow),
	{Group: "events.k8s.io", Resource: "events"}:                                           show(newEventStrategy(), eventColumns, eventRow),
	{Group: "batch", Resource: "jobs"}:                                                     show(renames(makesPods(jobStrategy())), jobColumns, jobRow),
	{Group: "batch", Resource: "cronjobs"}:                                                 show(makesPods(cronJobStrategy()), cronJobColumns, cronJobRow),
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}:                           show(autoscalerStrategy(), autoscalerColumns, autoscalerRow),
	{Group: "policy", Resource: "poddisruptionbudgets"}:                                    show(loose(disruptionBudgetStrategy()), disruptionBudgetColumns, disruptionBudgetRow),
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:                                showAny(roleStrategy(), createdColumns, createdRow),
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:                         showAny(clusterRoleStrategy(), createdColumns, createdRow),
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}:                         show(roleBindingStrategy(), roleBindingColumns, roleBindingRow),
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}:                  show(clusterRoleBindingStrategy(), clusterRoleBindingColumns, clusterRoleBindingRow),
	{Group: "networking.k8s.io", Resource: "ingresses"}:                                    show(renames(ingressStrategy()), ingressColumns, ingressRow),
	{Group: "networking.k8s.io", Resource: "ingressclasses"}:                               show(renames(ingressClassStrategy()), ingressClassColumns, ingressClassRow),
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:                              show(networkPolicyStrategy(), networkPolicyColumns, networkPolicyRow),
	{Group: "networking.k8s.io", Resource: "ipaddresses"}:                                  show(renames(ipAddressStrategy()), ipAddressColumns, ipAddressRow),
	{Group: "networking.k8s.io", Resource: "servicecidrs"}:                                 show(serviceCIDRStrategy(), serviceCIDRColumns, serviceCIDRRow),
	{Group: "discovery.k8s.io", Resource: "endpointslices"}:                                show(renames(endpointSliceStrategy()), endpointSliceColumns, endpointSliceRow),
	{Group: "storage.k8s.io", Resource: "storageclasses"}:                                  show(renames(storageClassStrategy()), storageClassColumns, storageClassRow),
	{Group: "storage.k8s.io", Resource: "csidrivers"}:                                      show(csiDriverStrategy(), csiDriverColumns, csiDriverRow),
	{Group: "storage.k8s.io", Resource: "csinodes"}:                                        show(renames(csiNodeStrategy()), csiNodeColumns, csiNodeRow),
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:                            showAny(renames(csiStorageCapacityStrategy()), createdColumns, createdRow),
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                               show(renames(volumeAttachmentStrategy()), volumeAttachmentColumns, volumeAttachmentRow),
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}:                         show(renames(volumeAttributesStrategy()), volumeAttributesColumns, volumeAttributesRow),
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:                              show(priorityClassStrategy(), priorityClassColumns, priorityClassRow),
	{Group: "coordination.k8s.io", Resource: "leases"}:                                     show(loose(leaseStrategy()), leaseColumns, leaseRow),
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:                                     show(renames(loose(runtimeClassStrategy())), runtimeClassColumns, runtimeClassRow),
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:                 show(certificateRequestStrategy(), certificateRequestColumns, certificateRequestRow),
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}:   show(loose(validatingWebhooksStrategy()), webhooksColumns, validatingWebhooksRow),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:     show(loose(mutatingWebhooksStrategy()), webhooksColumns, mutatingWebhooksRow),
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       show(renames(loose(validatingPolicyStrategy())), validatingPolicyColumns, validatingPolicyRow),
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: show(loose(validatingPolicyBindingStrategy()), policyBindingColumns, validatingPolicyBindingRow),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}:         show(renames(loose(mutatingPolicyStrategy())), mutatingPolicyColumns, mutatingPolicyRow),
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}:   show(loose(mutatingPolicyBindingStrategy()), policyBindingColumns, mutatingPolicyBindingRow),
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:                 showAny(loose(customResourceDefinitionStrategy()), createdColumns, createdRow),
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                             show(loose(apiServiceStrategy()), apiServiceColumns, apiServiceRow),
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}:                       show(renames(flowSchemaStrategy()), flowSchemaColumns, flowSchemaRow),
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}:       show(renames(priorityLevelStrategy()), priorityLevelColumns, priorityLevelRow),
	{Group: "resource.k8s.io", Resource: "deviceclasses"}:                                  showAny(deviceClassStrategy(), ageColumns, ageRow),
	{Group: "resource.k8s.io", Resource: "resourceslices"}:                                 show(resourceSliceStrategy(), resourceSliceColumns, resourceSliceRow),
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:                                 show(renames(resourceClaimStrategy()), resourceClaimColumns, resourceClaimRow),
	{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}:                         showAny(renames(resourceClaimTemplateStrategy()), ageColumns, ageRow),
	{Resource: "componentstatuses"}:                                                        show(&Strategy{}, componentStatusColumns, componentStatusRow),
	{Group: "metrics.k8s.io", Resource: "nodes"}:                                           show(&Strategy{}, nodeMetricsColumns, nodeMetricsRow),
	{Group: "metrics.k8s.io", Resource: "pods"}:                                            show(&Strategy{}, podMetricsColumns, podMetricsRow),
}

// Scales is the table of the scale subresource of every kind.
var Scales = show(&Strategy{}, scaleColumns, scaleRow)

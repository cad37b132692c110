package resource

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// pathSegment accepts any name that fits into one segment of a URL path, such as RBAC's
// "system:node".
func pathSegment(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

func rbacStrategy() *Strategy {
	s := plain(true)
	s.AllowCreateOnUpdate = true
	s.ValidateName = pathSegment
	return s
}

func roleStrategy() *Strategy {
	s := rbacStrategy()
	s.ValidateCreate = checks(validateRole)
	s.ValidateUpdate = checksBoth(validateRoleUpdate)
	return showAny(s, createdColumns, createdRow)
}

func clusterRoleStrategy() *Strategy {
	s := rbacStrategy()
	s.ValidateCreate = checks(validateClusterRole)
	s.ValidateUpdate = checksBoth(validateClusterRoleUpdate)
	return showAny(s, createdColumns, createdRow)
}

func roleBindingStrategy() *Strategy {
	s := rbacStrategy()
	s.Default = on(defaultRoleBinding)
	s.ValidateCreate = checks(validateRoleBinding)
	s.ValidateUpdate = checksBoth(validateRoleBindingUpdate)
	return show(s, roleBindingColumns, roleBindingRow)
}

func clusterRoleBindingStrategy() *Strategy {
	s := rbacStrategy()
	s.Default = on(defaultClusterRoleBinding)
	s.ValidateCreate = checks(validateClusterRoleBinding)
	s.ValidateUpdate = checksBoth(validateClusterRoleBindingUpdate)
	return show(s, clusterRoleBindingColumns, clusterRoleBindingRow)
}

func ingressStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Warnings = warnsOfNew(warnIngress)
	s.ValidateCreate = checks(validateIngressCreate)
	s.ValidateUpdate = checksBoth(validateIngressUpdate)
	s.ValidateStatus = checksBoth(validateIngressStatus)
	return show(renames(s), ingressColumns, ingressRow)
}

func ingressClassStrategy() *Strategy {
	s := withGeneration(true)
	s.Default = on(defaultIngressClass)
	s.ValidateCreate = checks(validateIngressClass)
	s.ValidateUpdate = checksBoth(validateIngressClassUpdate)
	return show(renames(s), ingressClassColumns, ingressClassRow)
}

func networkPolicyStrategy() *Strategy {
	s := withGeneration(true)
	s.Default = on(defaultNetworkPolicy)
	s.PrepareUpdate = onBoth(func(p, old *networkingv1.NetworkPolicy) {
		// An empty list in place of none counts as a change.
		setGeneration(p, old, !reflect.DeepEqual(p.Spec, old.Spec))
	})
	s.ValidateCreate = checks(validateNetworkPolicy)
	s.ValidateUpdate = checksBoth(validateNetworkPolicyUpdate)
	return show(s, networkPolicyColumns, networkPolicyRow)
}

func ipAddressStrategy() *Strategy {
	s := plain(true)
	s.ValidateName = canonicalIP
	s.ValidateCreate = checks(validateIPAddress)
	s.ValidateUpdate = checksBoth(validateIPAddressUpdate)
	return show(renames(s), ipAddressColumns, ipAddressRow)
}

func serviceCIDRStrategy() *Strategy {
	s := withStatus(true)
	s.ValidateCreate = checks(validateServiceCIDR)
	s.ValidateUpdate = checksBoth(validateServiceCIDRUpdate)
	s.leavesMetadata()
	return show(s, serviceCIDRColumns, serviceCIDRRow)
}

func endpointSliceStrategy() *Strategy {
	s := plain(true)
	s.Default = on(defaultEndpointSlice)
	s.PrepareCreate = on(func(e *discoveryv1.EndpointSlice) { e.Generation = 1 })
	s.dropping(func(obj, _ runtime.Object) {
		endpoints := obj.(*discoveryv1.EndpointSlice).Endpoints
		for i := range endpoints {
			endpoints[i].DeprecatedTopology = nil // only v1beta1 could set it
		}
	})
	drop := s.PrepareUpdate
	s.PrepareUpdate = onBoth(func(e, old *discoveryv1.EndpointSlice) {
		// A change of a dropped field counts as a change too.
		changed := e.AddressType != old.AddressType || !apiequality.Semantic.DeepEqual(e.Endpoints, old.Endpoints) ||
			!apiequality.Semantic.DeepEqual(e.Ports, old.Ports) || !apiequality.Semantic.DeepEqual(e.Labels, old.Labels)
		drop(e, old)
		setGeneration(e, old, changed)
	})
	s.Warnings = warnsOfNew(warnEndpointSlice)
	s.ValidateCreate = checks(validateEndpointSlice)
	s.ValidateUpdate = checksBoth(validateEndpointSliceUpdate)
	return show(renames(s), endpointSliceColumns, endpointSliceRow)
}

func storageClassStrategy() *Strategy {
	s := plain(true)
	s.Default = on(defaultStorageClass)
	s.Warnings = warns(warnStorageClass)
	s.ValidateCreate = checks(validateStorageClass)
	s.ValidateUpdate = checksBoth(validateStorageClassUpdate)
	return show(renames(s), storageClassColumns, storageClassRow)
}

func csiDriverStrategy() *Strategy {
	s := plain(false)
	s.Default = on(defaultCSIDriver)
	s.PrepareUpdate = onBoth(func(d, old *storagev1.CSIDriver) {
		setGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec))
	})
	s.dropping(func(obj, old runtime.Object) {
		// The feature behind CSIDriver's preventPodSchedulingIfMissing is off (KEP-5030).
		if old == nil || old.(*storagev1.CSIDriver).Spec.PreventPodSchedulingIfMissing == nil {
			obj.(*storagev1.CSIDriver).Spec.PreventPodSchedulingIfMissing = nil
		}
	})
	s.Warnings = func(obj, old runtime.Object) []string {
		d := obj.(*storagev1.CSIDriver)
		if old != nil && apiequality.Semantic.DeepEqual(d.Spec.TokenRequests, old.(*storagev1.CSIDriver).Spec.TokenRequests) {
			return nil // the kind's validation reports it
		}
		if len(d.Spec.TokenRequests) > 0 && d.Spec.ServiceAccountTokenInSecrets == nil {
			return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
		}
		return nil
	}
	s.ValidateCreate = checks(validateCSIDriver)
	s.ValidateUpdate = checksBoth(validateCSIDriverUpdate)
	return show(s, csiDriverColumns, csiDriverRow)
}

func csiNodeStrategy() *Strategy {
	s := plain(false)
	s.ValidateCreate = checks(validateCSINode)
	s.ValidateUpdate = checksBoth(validateCSINodeUpdate)
	return show(renames(s), csiNodeColumns, csiNodeRow)
}

func csiStorageCapacityStrategy() *Strategy {
	s := plain(false)
	s.Warnings = warns(warnCSIStorageCapacity)
	s.ValidateCreate = checks(validateCSIStorageCapacity)
	s.ValidateUpdate = checksBoth(validateCSIStorageCapacityUpdate)
	return showAny(renames(s), createdColumns, createdRow)
}

func volumeAttributesStrategy() *Strategy {
	s := plain(true)
	s.ValidateCreate = checks(validateVolumeAttributes)
	s.ValidateUpdate = checksBoth(validateVolumeAttributesUpdate)
	return show(renames(s), volumeAttributesColumns, volumeAttributesRow)
}

func volumeAttachmentStrategy() *Strategy {
	s := withStatus(false)
	s.Default = on(defaultVolumeAttachment)
	s.ValidateCreate = checks(validateVolumeAttachment)
	s.ValidateUpdate = checksBoth(validateVolumeAttachmentUpdate)
	s.ValidateStatus = checksBoth(validateVolumeAttachmentStatus)
	s.NameRuleOnStatus = true
	s.leavesMetadata()
	return show(renames(s), volumeAttachmentColumns, volumeAttachmentRow)
}

func priorityClassStrategy() *Strategy {
	s := plain(true)
	s.Default = on(defaultPriorityClass)
	s.PrepareCreate = on(func(c *schedulingv1.PriorityClass) { c.Generation = 1 })
	s.PrepareUpdate = onBoth(func(c, old *schedulingv1.PriorityClass) { c.Generation = old.Generation })
	s.ValidateCreate = checks(validatePriorityClass)
	s.ValidateUpdate = checksBoth(validatePriorityClassUpdate)
	return show(s, priorityClassColumns, priorityClassRow)
}

func leaseStrategy() *Strategy {
	s := plain(false)
	s.AllowCreateOnUpdate = true
	s.dropping(func(obj, old runtime.Object) {
		// The feature CoordinatedLeaderElection is off.
		spec := &obj.(*coordinationv1.Lease).Spec
		if old == nil || old.(*coordinationv1.Lease).Spec.Strategy == nil {
			spec.Strategy = nil
		}
		if old == nil || old.(*coordinationv1.Lease).Spec.PreferredHolder == nil {
			spec.PreferredHolder = nil
		}
	})
	s.ValidateCreate = checks(validateLease)
	s.ValidateUpdate = checksBoth(validateLeaseUpdate)
	return show(loose(s), leaseColumns, leaseRow)
}

func runtimeClassStrategy() *Strategy {
	s := plain(false)
	s.AllowCreateOnUpdate = true
	s.Warnings = warns(warnRuntimeClass)
	s.ValidateCreate = checks(validateRuntimeClass)
	s.ValidateUpdate = checksBoth(validateRuntimeClassUpdate)
	return show(renames(loose(s)), runtimeClassColumns, runtimeClassRow)
}

func certificateRequestStrategy() *Strategy {
	s := withStatus(true)
	s.ValidateName = func(string, bool) []string { return nil }
	s.PrepareUpdate = onBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
		// spec and status stay as they were when the request was created.
		request := old.DeepCopy()
		c.Spec, c.Status = request.Spec, request.Status
	})
	s.PrepareStatus = onBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
		request := old.DeepCopy()
		c.Spec = request.Spec
		// Keep approvals and denials as they are; validation refuses to add or remove one.
		for _, v := range verdicts(request) {
			if i := slices.IndexFunc(c.Status.Conditions, func(n certificatesv1.CertificateSigningRequestCondition) bool { return n.Type == v.Type }); i >= 0 {
				c.Status.Conditions[i] = v
			}
		}
	})
	s.Stamp = func(obj, old runtime.Object, now metav1.Time) {
		stampConditions(obj.(*certificatesv1.CertificateSigningRequest).Status.Conditions, old.(*certificatesv1.CertificateSigningRequest).Status.Conditions, now)
	}
	s.ValidateCreate = checks(validateCertificateRequest)
	s.ValidateUpdate = checksBoth(validateCertificateUpdate)
	s.ValidateStatus = checksBoth(validateCertificateStatus)
	s.Subresource = map[string]UpdateStrategy{
		"approval": {Validate: checksBoth(validateCertificateUpdate), Prepare: onBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
			conditions := c.Status.Conditions
			request := old.DeepCopy()
			c.Spec, c.Status = request.Spec, request.Status
			c.Status.Conditions = conditions
		})},
	}
	s.Resets = map[string][]string{"": {"spec"}, "status": {"status.conditions"}, "approval": {"spec", "status.certificate"}}
	s.FieldNames = []string{"spec.signerName"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"spec.signerName": obj.(*certificatesv1.CertificateSigningRequest).Spec.SignerName}
	}
	return show(s, certificateRequestColumns, certificateRequestRow)
}

// stampConditions sets the times of conditions: of their last write, and of their last change of
// status.
func stampConditions(conditions, old []certificatesv1.CertificateSigningRequestCondition, now metav1.Time) {
	type kind struct {
		of     certificatesv1.RequestConditionType
		status corev1.ConditionStatus
	}
	since := map[kind]metav1.Time{}
	for _, o := range old {
		if !o.LastTransitionTime.IsZero() {
			since[kind{o.Type, o.Status}] = o.LastTransitionTime
		}
	}
	for i := range conditions {
		c := &conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		if before, ok := since[kind{c.Type, c.Status}]; ok {
			c.LastTransitionTime = before
		}
	}
}

func validatingWebhooksStrategy() *Strategy {
	s := plain(false)
	s.Default = on(defaultValidatingWebhooks)
	s.ValidateCreate, s.ValidateUpdate = checks(validateValidatingWebhooks), checksBoth(validateValidatingWebhooksUpdate)
	s.PrepareCreate = on(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Generation = 1 })
	s.PrepareUpdate = onBoth(func(c, old *admissionregistrationv1.ValidatingWebhookConfiguration) {
		// An empty list in place of none counts as a change.
		setGeneration(c, old, !reflect.DeepEqual(c.Webhooks, old.Webhooks))
	})
	return show(loose(s), webhooksColumns, validatingWebhooksRow)
}

func mutatingWebhooksStrategy() *Strategy {
	s := plain(false)
	s.Default = on(defaultMutatingWebhooks)
	s.ValidateCreate, s.ValidateUpdate = checks(validateMutatingWebhooks), checksBoth(validateMutatingWebhooksUpdate)
	s.PrepareCreate = on(func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Generation = 1 })
	s.PrepareUpdate = onBoth(func(c, old *admissionregistrationv1.MutatingWebhookConfiguration) {
		// An empty list in place of none counts as a change.
		setGeneration(c, old, !reflect.DeepEqual(c.Webhooks, old.Webhooks))
	})
	return show(loose(s), webhooksColumns, mutatingWebhooksRow)
}

func validatingPolicyStrategy() *Strategy {
	s := withStatusAndGeneration(false)
	s.Default = on(defaultValidatingPolicy)
	s.ValidateCreate, s.ValidateUpdate = checks(validateValidatingPolicy), checksBoth(validateValidatingPolicyUpdate)
	s.ValidateStatus = checksBoth(validateValidatingPolicyStatus)
	s.leavesMetadata()
	return show(renames(loose(s)), validatingPolicyColumns, validatingPolicyRow)
}

func validatingPolicyBindingStrategy() *Strategy {
	s := withGeneration(false)
	s.Default = on(defaultValidatingPolicyBinding)
	s.ValidateCreate, s.ValidateUpdate = checks(validateValidatingPolicyBinding), checksBoth(validateValidatingPolicyBindingUpdate)
	return show(loose(s), policyBindingColumns, validatingPolicyBindingRow)
}

func mutatingPolicyStrategy() *Strategy {
	s := withGeneration(false)
	s.Default = on(defaultMutatingPolicy)
	s.ValidateCreate, s.ValidateUpdate = checks(validateMutatingPolicy), checksBoth(validateMutatingPolicyUpdate)
	return show(renames(loose(s)), mutatingPolicyColumns, mutatingPolicyRow)
}

func mutatingPolicyBindingStrategy() *Strategy {
	s := withGeneration(false)
	s.Default = on(defaultMutatingPolicyBinding)
	s.ValidateCreate, s.ValidateUpdate = checks(validateMutatingPolicyBinding), checksBoth(validateMutatingPolicyBindingUpdate)
	return show(loose(s), policyBindingColumns, mutatingPolicyBindingRow)
}

func apiServiceStrategy() *Strategy {
	s := withStatus(false)
	s.Default = on(defaultAPIService)
	s.PrepareCreate = on(func(a *apiregistrationv1.APIService) {
		a.Status = apiregistrationv1.APIServiceStatus{}
		if a.Spec.Service == nil {
			// This server serves the group itself, so it is always available.
			a.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
				Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Local",
				Message: "Local APIServices are always available", LastTransitionTime: metav1.NewTime(a.CreationTimestamp.Time),
			}}
		}
	})
	s.ValidateName = pathSegment
	s.ValidateCreate = checks(validateAPIService)
	s.ValidateUpdate = checksBoth(func(a, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIService(a) })
	s.ValidateStatus = checksBoth(func(a, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIServiceStatus(a) })
	s.leavesMetadata()
	s.PrepareStatus = onBoth(func(a, old *apiregistrationv1.APIService) {
		sent := a.SelfLink // Not stored. As upstream, a dry run of this kind shows it.
		onlyStatus(a, old, "Spec")
		a.SelfLink = sent
	})
	return show(loose(s), apiServiceColumns, apiServiceRow)
}

func flowSchemaStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultFlowSchema)
	s.ValidateCreate = checks(validateFlowSchema)
	s.ValidateUpdate = checksBoth(validateFlowSchemaUpdate)
	s.ValidateStatus = checksBoth(validateFlowSchemaUpdate)
	s.RowOrder = func(a, b runtime.Object) int {
		return byPrecedence(a.(*flowcontrolv1.FlowSchema), b.(*flowcontrolv1.FlowSchema))
	}
	s.leavesAllMetadata()
	return show(renames(s), flowSchemaColumns, flowSchemaRow)
}

func priorityLevelStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultPriorityLevel)
	s.ValidateCreate = checks(validatePriorityLevel)
	s.ValidateUpdate = checksBoth(validatePriorityLevelUpdate)
	s.ValidateStatus = checksBoth(validatePriorityLevelUpdate)
	s.leavesAllMetadata()
	return show(renames(s), priorityLevelColumns, priorityLevelRow)
}

func deviceClassStrategy() *Strategy {
	s := withGeneration(true)
	s.ValidateName = declaredSubdomain
	s.ValidateCreate = checks(validateDeviceClass)
	s.ValidateUpdate = checksBoth(validateDeviceClassUpdate)
	return showAny(s, ageColumns, ageRow)
}

func resourceSliceStrategy() *Strategy {
	s := withGeneration(true)
	s.ValidateCreate = checks(validateResourceSlice)
	s.ValidateUpdate = checksBoth(validateResourceSliceUpdate)
	s.Warnings = func(obj, _ runtime.Object) []string {
		driver := obj.(*resourcev1.ResourceSlice).Spec.Driver
		if driver == strings.ToLower(driver) {
			return nil
		}
		return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", driver)}
	}
	s.PrepareCreate = on(func(r *resourcev1.ResourceSlice) { dropDeviceLists(r); r.Generation = 1 })
	s.PrepareUpdate = onBoth(func(r, old *resourcev1.ResourceSlice) {
		setGeneration(r, old, !same(r, old, "Spec")) // a change of a dropped field counts too
		dropDeviceLists(r)
	})
	s.FieldNames = []string{resourcev1.ResourceSliceSelectorNodeName, resourcev1.ResourceSliceSelectorDriver}
	s.Fields = func(obj runtime.Object) fields.Set {
		r := obj.(*resourcev1.ResourceSlice)
		set := fields.Set{resourcev1.ResourceSliceSelectorDriver: r.Spec.Driver, resourcev1.ResourceSliceSelectorNodeName: ""}
		if r.Spec.NodeName != nil {
			set[resourcev1.ResourceSliceSelectorNodeName] = *r.Spec.NodeName
		}
		return set
	}
	return show(s, resourceSliceColumns, resourceSliceRow)
}

// dropDeviceLists clears fields of the features DRAListTypeAttributes and
// DRANodeAllocatableResources, which are off.
func dropDeviceLists(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		d.NodeAllocatableResourceMappings = nil
		for name, a := range d.Attributes {
			a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}
}

func resourceClaimStrategy() *Strategy {
	s := withStatus(true)
	s.Default = on(defaultResourceClaim)
	s.ValidateCreate = checks(validateResourceClaim)
	s.ValidateUpdate = checksBoth(validateResourceClaimUpdate)
	s.leavesMetadata()
	s.PrepareStatus = onBoth(func(c, old *resourcev1.ResourceClaim) {
		onlyStatus(c, old, "Spec")
		if c.Status.Allocation == nil && old.Status.Allocation != nil {
			c.Status.Devices = nil // drivers report on allocated devices only
		}
	})
	s.ValidateStatus = checksBoth(validateResourceClaimStatus)
	return show(renames(s), resourceClaimColumns, resourceClaimRow)
}

func resourceClaimTemplateStrategy() *Strategy {
	s := plain(true)
	s.Default = on(defaultResourceClaimTemplate)
	s.ValidateCreate = checks(validateResourceClaimTemplate)
	s.ValidateUpdate = checksBoth(validateResourceClaimTemplateUpdate)
	return showAny(renames(s), ageColumns, ageRow)
}

// canonicalIP accepts an IPAddress's name: an address in canonical form.
func canonicalIP(name string, _ bool) []string {
	var texts []string
	for _, err := range validation.IsValidIP(nil, name) {
		texts = append(texts, err.Detail)
	}
	if len(texts) > 0 {
		return texts
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.String() != name {
		return []string{fmt.Sprintf("must be in canonical form (%q)", ip)}
	}
	return nil
}

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func rbacStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.AllowCreateOnUpdate = true
	s.ValidateName = strategy.PathSegment
	return s
}

func roleStrategy() *strategy.Strategy {
	s := rbacStrategy()
	s.ValidateCreate = strategy.Checks(validateRole)
	s.ValidateUpdate = strategy.ChecksBoth(validateRoleUpdate)
	return strategy.ShowAny(s, columns.Created, columns.CreatedRow)
}

func clusterRoleStrategy() *strategy.Strategy {
	s := rbacStrategy()
	s.ValidateCreate = strategy.Checks(validateClusterRole)
	s.ValidateUpdate = strategy.ChecksBoth(validateClusterRoleUpdate)
	return strategy.ShowAny(s, columns.Created, columns.CreatedRow)
}

func roleBindingStrategy() *strategy.Strategy {
	s := rbacStrategy()
	s.Default = strategy.On(defaultRoleBinding)
	s.ValidateCreate = strategy.Checks(validateRoleBinding)
	s.ValidateUpdate = strategy.ChecksBoth(validateRoleBindingUpdate)
	return strategy.Show(s, roleBindingColumns, roleBindingRow)
}

func clusterRoleBindingStrategy() *strategy.Strategy {
	s := rbacStrategy()
	s.Default = strategy.On(defaultClusterRoleBinding)
	s.ValidateCreate = strategy.Checks(validateClusterRoleBinding)
	s.ValidateUpdate = strategy.ChecksBoth(validateClusterRoleBindingUpdate)
	return strategy.Show(s, clusterRoleBindingColumns, clusterRoleBindingRow)
}

func ingressStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Warnings = strategy.WarnsOfNew(warnIngress)
	s.ValidateCreate = strategy.Checks(validateIngressCreate)
	s.ValidateUpdate = strategy.ChecksBoth(validateIngressUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateIngressStatus)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), ingressColumns, ingressRow)
}

func ingressClassStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(true)
	s.Default = strategy.On(defaultIngressClass)
	s.ValidateCreate = strategy.Checks(validateIngressClass)
	s.ValidateUpdate = strategy.ChecksBoth(validateIngressClassUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), ingressClassColumns, ingressClassRow)
}

func networkPolicyStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(true)
	s.Default = strategy.On(defaultNetworkPolicy)
	s.PrepareUpdate = strategy.OnBoth(func(p, old *networkingv1.NetworkPolicy) {
		// An empty list in place of none counts as a change.
		strategy.SetGeneration(p, old, !reflect.DeepEqual(p.Spec, old.Spec))
	})
	s.ValidateCreate = strategy.Checks(validateNetworkPolicy)
	s.ValidateUpdate = strategy.ChecksBoth(validateNetworkPolicyUpdate)
	return strategy.Show(s, networkPolicyColumns, networkPolicyRow)
}

func ipAddressStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.ValidateName = canonicalIP
	s.ValidateCreate = strategy.Checks(validateIPAddress)
	s.ValidateUpdate = strategy.ChecksBoth(validateIPAddressUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), ipAddressColumns, ipAddressRow)
}

func serviceCIDRStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.ValidateCreate = strategy.Checks(validateServiceCIDR)
	s.ValidateUpdate = strategy.ChecksBoth(validateServiceCIDRUpdate)
	s.KeepMetadataInStatus()
	return strategy.Show(s, serviceCIDRColumns, serviceCIDRRow)
}

func endpointSliceStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultEndpointSlice)
	s.PrepareCreate = strategy.On(func(e *discoveryv1.EndpointSlice) { e.Generation = 1 })
	s.DropFields(func(obj, _ runtime.Object) {
		endpoints := obj.(*discoveryv1.EndpointSlice).Endpoints
		for i := range endpoints {
			endpoints[i].DeprecatedTopology = nil // only v1beta1 could set it
		}
	})
	drop := s.PrepareUpdate
	s.PrepareUpdate = strategy.OnBoth(func(e, old *discoveryv1.EndpointSlice) {
		// A change of a dropped field counts as a change too.
		changed := e.AddressType != old.AddressType || !apiequality.Semantic.DeepEqual(e.Endpoints, old.Endpoints) ||
			!apiequality.Semantic.DeepEqual(e.Ports, old.Ports) || !apiequality.Semantic.DeepEqual(e.Labels, old.Labels)
		drop(e, old)
		strategy.SetGeneration(e, old, changed)
	})
	s.Warnings = strategy.WarnsOfNew(warnEndpointSlice)
	s.ValidateCreate = strategy.Checks(validateEndpointSlice)
	s.ValidateUpdate = strategy.ChecksBoth(validateEndpointSliceUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), endpointSliceColumns, endpointSliceRow)
}

func storageClassStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultStorageClass)
	s.Warnings = strategy.Warns(warnStorageClass)
	s.ValidateCreate = strategy.Checks(validateStorageClass)
	s.ValidateUpdate = strategy.ChecksBoth(validateStorageClassUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), storageClassColumns, storageClassRow)
}

func csiDriverStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.Default = strategy.On(defaultCSIDriver)
	s.PrepareUpdate = strategy.OnBoth(func(d, old *storagev1.CSIDriver) {
		strategy.SetGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec))
	})
	s.DropFields(func(obj, old runtime.Object) {
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
	s.ValidateCreate = strategy.Checks(validateCSIDriver)
	s.ValidateUpdate = strategy.ChecksBoth(validateCSIDriverUpdate)
	return strategy.Show(s, csiDriverColumns, csiDriverRow)
}

func csiNodeStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.ValidateCreate = strategy.Checks(validateCSINode)
	s.ValidateUpdate = strategy.ChecksBoth(validateCSINodeUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), csiNodeColumns, csiNodeRow)
}

func csiStorageCapacityStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.Warnings = strategy.Warns(warnCSIStorageCapacity)
	s.ValidateCreate = strategy.Checks(validateCSIStorageCapacity)
	s.ValidateUpdate = strategy.ChecksBoth(validateCSIStorageCapacityUpdate)
	return strategy.ShowAny(strategy.WithNameRuleOnUpdate(s), columns.Created, columns.CreatedRow)
}

func volumeAttributesStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.ValidateCreate = strategy.Checks(validateVolumeAttributes)
	s.ValidateUpdate = strategy.ChecksBoth(validateVolumeAttributesUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), volumeAttributesColumns, volumeAttributesRow)
}

func volumeAttachmentStrategy() *strategy.Strategy {
	s := strategy.WithStatus(false)
	s.Default = strategy.On(defaultVolumeAttachment)
	s.ValidateCreate = strategy.Checks(validateVolumeAttachment)
	s.ValidateUpdate = strategy.ChecksBoth(validateVolumeAttachmentUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateVolumeAttachmentStatus)
	s.NameRuleOnStatus = true
	s.KeepMetadataInStatus()
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), volumeAttachmentColumns, volumeAttachmentRow)
}

func priorityClassStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultPriorityClass)
	s.PrepareCreate = strategy.On(func(c *schedulingv1.PriorityClass) { c.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(c, old *schedulingv1.PriorityClass) { c.Generation = old.Generation })
	s.ValidateCreate = strategy.Checks(validatePriorityClass)
	s.ValidateUpdate = strategy.ChecksBoth(validatePriorityClassUpdate)
	return strategy.Show(s, priorityClassColumns, priorityClassRow)
}

func leaseStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.AllowCreateOnUpdate = true
	s.DropFields(func(obj, old runtime.Object) {
		// The feature CoordinatedLeaderElection is off.
		spec := &obj.(*coordinationv1.Lease).Spec
		if old == nil || old.(*coordinationv1.Lease).Spec.Strategy == nil {
			spec.Strategy = nil
		}
		if old == nil || old.(*coordinationv1.Lease).Spec.PreferredHolder == nil {
			spec.PreferredHolder = nil
		}
	})
	s.ValidateCreate = strategy.Checks(validateLease)
	s.ValidateUpdate = strategy.ChecksBoth(validateLeaseUpdate)
	return strategy.Show(strategy.WithLooseFinalizers(s), leaseColumns, leaseRow)
}

func runtimeClassStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.AllowCreateOnUpdate = true
	s.Warnings = strategy.Warns(warnRuntimeClass)
	s.ValidateCreate = strategy.Checks(validateRuntimeClass)
	s.ValidateUpdate = strategy.ChecksBoth(validateRuntimeClassUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(strategy.WithLooseFinalizers(s)), runtimeClassColumns, runtimeClassRow)
}

func certificateRequestStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.ValidateName = func(string, bool) []string { return nil }
	s.PrepareUpdate = strategy.OnBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
		// spec and status stay as they were when the request was created.
		request := old.DeepCopy()
		c.Spec, c.Status = request.Spec, request.Status
	})
	s.PrepareStatus = strategy.OnBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
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
	s.ValidateCreate = strategy.Checks(validateCertificateRequest)
	s.ValidateUpdate = strategy.ChecksBoth(validateCertificateUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateCertificateStatus)
	s.Subresource = map[string]strategy.UpdateStrategy{
		"approval": {Validate: strategy.ChecksBoth(validateCertificateUpdate), Prepare: strategy.OnBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
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
	return strategy.Show(s, certificateRequestColumns, certificateRequestRow)
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

func validatingWebhooksStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.Default = strategy.On(defaultValidatingWebhooks)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateValidatingWebhooks), strategy.ChecksBoth(validateValidatingWebhooksUpdate)
	s.PrepareCreate = strategy.On(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(c, old *admissionregistrationv1.ValidatingWebhookConfiguration) {
		// An empty list in place of none counts as a change.
		strategy.SetGeneration(c, old, !reflect.DeepEqual(c.Webhooks, old.Webhooks))
	})
	return strategy.Show(strategy.WithLooseFinalizers(s), webhooksColumns, validatingWebhooksRow)
}

func mutatingWebhooksStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.Default = strategy.On(defaultMutatingWebhooks)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateMutatingWebhooks), strategy.ChecksBoth(validateMutatingWebhooksUpdate)
	s.PrepareCreate = strategy.On(func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(c, old *admissionregistrationv1.MutatingWebhookConfiguration) {
		// An empty list in place of none counts as a change.
		strategy.SetGeneration(c, old, !reflect.DeepEqual(c.Webhooks, old.Webhooks))
	})
	return strategy.Show(strategy.WithLooseFinalizers(s), webhooksColumns, mutatingWebhooksRow)
}

func validatingPolicyStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(false)
	s.Default = strategy.On(defaultValidatingPolicy)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateValidatingPolicy), strategy.ChecksBoth(validateValidatingPolicyUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateValidatingPolicyStatus)
	s.KeepMetadataInStatus()
	return strategy.Show(strategy.WithNameRuleOnUpdate(strategy.WithLooseFinalizers(s)), validatingPolicyColumns, validatingPolicyRow)
}

func validatingPolicyBindingStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(false)
	s.Default = strategy.On(defaultValidatingPolicyBinding)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateValidatingPolicyBinding), strategy.ChecksBoth(validateValidatingPolicyBindingUpdate)
	return strategy.Show(strategy.WithLooseFinalizers(s), policyBindingColumns, validatingPolicyBindingRow)
}

func mutatingPolicyStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(false)
	s.Default = strategy.On(defaultMutatingPolicy)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateMutatingPolicy), strategy.ChecksBoth(validateMutatingPolicyUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(strategy.WithLooseFinalizers(s)), mutatingPolicyColumns, mutatingPolicyRow)
}

func mutatingPolicyBindingStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(false)
	s.Default = strategy.On(defaultMutatingPolicyBinding)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateMutatingPolicyBinding), strategy.ChecksBoth(validateMutatingPolicyBindingUpdate)
	return strategy.Show(strategy.WithLooseFinalizers(s), policyBindingColumns, mutatingPolicyBindingRow)
}

func apiServiceStrategy() *strategy.Strategy {
	s := strategy.WithStatus(false)
	s.Default = strategy.On(defaultAPIService)
	s.PrepareCreate = strategy.On(func(a *apiregistrationv1.APIService) {
		a.Status = apiregistrationv1.APIServiceStatus{}
		if a.Spec.Service == nil {
			// This server serves the group itself, so it is always available.
			a.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
				Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Local",
				Message: "Local APIServices are always available", LastTransitionTime: metav1.NewTime(a.CreationTimestamp.Time),
			}}
		}
	})
	s.ValidateName = strategy.PathSegment
	s.ValidateCreate = strategy.Checks(validateAPIService)
	s.ValidateUpdate = strategy.ChecksBoth(func(a, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIService(a) })
	s.ValidateStatus = strategy.ChecksBoth(func(a, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIServiceStatus(a) })
	s.KeepMetadataInStatus()
	s.PrepareStatus = strategy.OnBoth(func(a, old *apiregistrationv1.APIService) {
		sent := a.SelfLink // Not stored. As upstream, a dry run of this kind shows it.
		strategy.OnlyStatus(a, old, "Spec")
		a.SelfLink = sent
	})
	return strategy.Show(strategy.WithLooseFinalizers(s), apiServiceColumns, apiServiceRow)
}

func flowSchemaStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultFlowSchema)
	s.ValidateCreate = strategy.Checks(validateFlowSchema)
	s.ValidateUpdate = strategy.ChecksBoth(validateFlowSchemaUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateFlowSchemaUpdate)
	s.RowOrder = func(a, b runtime.Object) int {
		return byPrecedence(a.(*flowcontrolv1.FlowSchema), b.(*flowcontrolv1.FlowSchema))
	}
	s.KeepAllMetadataInStatus()
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), flowSchemaColumns, flowSchemaRow)
}

func priorityLevelStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultPriorityLevel)
	s.ValidateCreate = strategy.Checks(validatePriorityLevel)
	s.ValidateUpdate = strategy.ChecksBoth(validatePriorityLevelUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validatePriorityLevelUpdate)
	s.KeepAllMetadataInStatus()
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), priorityLevelColumns, priorityLevelRow)
}

func deviceClassStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(true)
	s.ValidateName = strategy.DeclaredSubdomain
	s.ValidateCreate = strategy.Checks(validateDeviceClass)
	s.ValidateUpdate = strategy.ChecksBoth(validateDeviceClassUpdate)
	return strategy.ShowAny(s, columns.NameAndAge, columns.NameAndAgeRow)
}

func resourceSliceStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(true)
	s.ValidateCreate = strategy.Checks(validateResourceSlice)
	s.ValidateUpdate = strategy.ChecksBoth(validateResourceSliceUpdate)
	s.Warnings = func(obj, _ runtime.Object) []string {
		driver := obj.(*resourcev1.ResourceSlice).Spec.Driver
		if driver == strings.ToLower(driver) {
			return nil
		}
		return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", driver)}
	}
	s.PrepareCreate = strategy.On(func(r *resourcev1.ResourceSlice) { dropDeviceLists(r); r.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(r, old *resourcev1.ResourceSlice) {
		strategy.SetGeneration(r, old, !strategy.Same(r, old, "Spec")) // a change of a dropped field counts too
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
	return strategy.Show(s, resourceSliceColumns, resourceSliceRow)
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

func resourceClaimStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultResourceClaim)
	s.ValidateCreate = strategy.Checks(validateResourceClaim)
	s.ValidateUpdate = strategy.ChecksBoth(validateResourceClaimUpdate)
	s.KeepMetadataInStatus()
	s.PrepareStatus = strategy.OnBoth(func(c, old *resourcev1.ResourceClaim) {
		strategy.OnlyStatus(c, old, "Spec")
		if c.Status.Allocation == nil && old.Status.Allocation != nil {
			c.Status.Devices = nil // drivers report on allocated devices only
		}
	})
	s.ValidateStatus = strategy.ChecksBoth(validateResourceClaimStatus)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), resourceClaimColumns, resourceClaimRow)
}

func resourceClaimTemplateStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultResourceClaimTemplate)
	s.ValidateCreate = strategy.Checks(validateResourceClaimTemplate)
	s.ValidateUpdate = strategy.ChecksBoth(validateResourceClaimTemplateUpdate)
	return strategy.ShowAny(strategy.WithNameRuleOnUpdate(s), columns.NameAndAge, columns.NameAndAgeRow)
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

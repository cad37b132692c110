package resource

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// DefaultBody sets the defaults of a subresource's request body that has no strategy of its own.
func DefaultBody(obj runtime.Object) {
	if t, ok := obj.(*authenticationv1.TokenRequest); ok {
		strategy.SetPointer(&t.Spec.ExpirationSeconds, defaultTokenSeconds)
	}
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		strategy.SetPointer(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		strategy.SetPointer(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		strategy.SetPointer(&s.Ports[i].Name, "")
		strategy.SetPointer(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func defaultRoleBinding(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

func defaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	strategy.SetDefault(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if s := &subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			strategy.SetDefault(&s.APIGroup, rbacv1.GroupName)
		}
	}
}

func defaultStorageClass(c *storagev1.StorageClass) {
	strategy.SetPointer(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	strategy.SetPointer(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	strategy.SetPointer(&d.Spec.AttachRequired, true)
	strategy.SetPointer(&d.Spec.PodInfoOnMount, false)
	strategy.SetPointer(&d.Spec.StorageCapacity, false)
	strategy.SetPointer(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	strategy.SetPointer(&d.Spec.RequiresRepublish, false)
	strategy.SetPointer(&d.Spec.SELinuxMount, false)
}

func defaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if s := a.Spec.Source.InlineVolumeSpec; s != nil {
		v := corev1.PersistentVolume{Spec: *s}
		defaultPersistentVolume(&v)
		*s = v.Spec
	}
}

func defaultPriorityClass(c *schedulingv1.PriorityClass) {
	strategy.SetPointer(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}

func defaultValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		strategy.SetPointer(&w.FailurePolicy, admissionregistrationv1.Fail)
		strategy.SetPointer(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		strategy.SetPointer(&w.NamespaceSelector, metav1.LabelSelector{})
		strategy.SetPointer(&w.ObjectSelector, metav1.LabelSelector{})
		strategy.SetPointer(&w.TimeoutSeconds, 10)
		defaultWebhookClient(&w.ClientConfig)
		defaultWebhookRules(w.Rules)
	}
}

func defaultMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		strategy.SetPointer(&w.FailurePolicy, admissionregistrationv1.Fail)
		strategy.SetPointer(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		strategy.SetPointer(&w.NamespaceSelector, metav1.LabelSelector{})
		strategy.SetPointer(&w.ObjectSelector, metav1.LabelSelector{})
		strategy.SetPointer(&w.TimeoutSeconds, 10)
		strategy.SetPointer(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		defaultWebhookClient(&w.ClientConfig)
		defaultWebhookRules(w.Rules)
	}
}

func defaultWebhookClient(c *admissionregistrationv1.WebhookClientConfig) {
	if c.Service != nil {
		strategy.SetPointer(&c.Service.Port, 443)
	}
}

func defaultWebhookRules(rules []admissionregistrationv1.RuleWithOperations) {
	for i := range rules {
		strategy.SetPointer(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

func defaultMatchResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	strategy.SetPointer(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	strategy.SetPointer(&m.NamespaceSelector, metav1.LabelSelector{})
	strategy.SetPointer(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			strategy.SetPointer(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func defaultValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	strategy.SetPointer(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatchResources(p.Spec.MatchConstraints)
}

func defaultValidatingPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	defaultMatchResources(b.Spec.MatchResources)
}

func defaultMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	strategy.SetPointer(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatchResources(p.Spec.MatchConstraints)
}

func defaultMutatingPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	defaultMatchResources(b.Spec.MatchResources)
}

func defaultFlowSchema(f *flowcontrolv1.FlowSchema) {
	strategy.SetDefault(&f.Spec.MatchingPrecedence, 1000)
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if l := p.Spec.Limited; l != nil {
		strategy.SetPointer(&l.NominalConcurrencyShares, 30)
		strategy.SetPointer(&l.LendablePercent, 0)
		if q := l.LimitResponse.Queuing; q != nil {
			strategy.SetDefault(&q.Queues, 64)
			strategy.SetDefault(&q.HandSize, 8)
			strategy.SetDefault(&q.QueueLengthLimit, 50)
		}
	}
	if e := p.Spec.Exempt; e != nil {
		strategy.SetPointer(&e.NominalConcurrencyShares, 0)
		strategy.SetPointer(&e.LendablePercent, 0)
	}
}

func defaultClaimRequests(requests []resourcev1.DeviceRequest) {
	for i := range requests {
		if e := requests[i].Exactly; e != nil {
			defaultAllocation(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range requests[i].FirstAvailable {
			s := &requests[i].FirstAvailable[j]
			defaultAllocation(&s.AllocationMode, &s.Count, s.Tolerations)
		}
	}
}

func defaultAllocation(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
	strategy.SetDefault(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		strategy.SetDefault(count, 1)
	}
	for i := range tolerations {
		strategy.SetDefault(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	defaultClaimRequests(c.Spec.Devices.Requests)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			tolerations := a.Devices.Results[i].Tolerations
			for j := range tolerations {
				strategy.SetDefault(&tolerations[j].Operator, resourcev1.DeviceTolerationOpEqual)
			}
		}
	}
}

func defaultResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) {
	defaultClaimRequests(t.Spec.Spec.Devices.Requests)
}

func defaultCustomResourceDefinition(c *apiextensionsv1.CustomResourceDefinition) {
	apiextensionsv1.SetDefaults_CustomResourceDefinition(c)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&c.Spec)
	conv := c.Spec.Conversion
	switch {
	case conv == nil || conv.Webhook == nil:
	case conv.Webhook.ClientConfig == nil && len(conv.Webhook.ConversionReviewVersions) == 0:
		conv.Webhook = nil // an empty webhook has no meaning
	case conv.Webhook.ClientConfig != nil && conv.Webhook.ClientConfig.Service != nil:
		apiextensionsv1.SetDefaults_ServiceReference(conv.Webhook.ClientConfig.Service)
	}
}

func defaultAPIService(a *apiregistrationv1.APIService) {
	if a.Spec.Service != nil {
		strategy.SetPointer(&a.Spec.Service.Port, 443)
	}
}

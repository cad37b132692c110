package resource

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

var ingressColumns = columns.Define("Name", "Class=The name of the IngressClass resource that should be used for additional configuration", "Hosts=Hosts that incoming requests are matched against before the ingress rule",
	"Address=Address is a list containing ingress points for the load-balancer", "Ports=Ports of TLS configurations that open", "Age")

func ingressRow(i *networkingv1.Ingress, now metav1.Time) []any {
	class := columns.None
	if i.Spec.IngressClassName != nil {
		class = *i.Spec.IngressClassName
	}
	var hosts []string
	for _, r := range i.Spec.Rules {
		if r.Host != "" {
			hosts = append(hosts, r.Host)
		}
	}
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	var addresses []string
	for _, in := range i.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			addresses = append(addresses, in.IP)
		} else if in.Hostname != "" {
			addresses = append(addresses, in.Hostname)
		}
	}
	return []any{i.Name, class, columns.FirstFew(hosts, 3, "*"), strings.Join(addresses, ","), ports, columns.AgeOf(i, now)}
}

var ingressClassColumns = columns.Define("Name", "Controller=Controller that is responsible for handling this class", "Parameters=A reference to a resource with additional parameters", "Age")

func ingressClassRow(c *networkingv1.IngressClass, now metav1.Time) []any {
	parameters := columns.None
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if group := validate.Deref(p.APIGroup); group != "" {
			parameters += "." + group
		}
		parameters += "/" + p.Name
	}
	return []any{c.Name, c.Spec.Controller, parameters, columns.AgeOf(c, now)}
}

var networkPolicyColumns = columns.Define("Name", "Pod-Selector@spec.podSelector", "Age")

func networkPolicyRow(p *networkingv1.NetworkPolicy, now metav1.Time) []any {
	return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), columns.AgeOf(p, now)}
}

var ipAddressColumns = columns.Define("Name", "ParentRef@spec.parentRef")

// ipAddressRow has one cell more than columns, as upstream has.
func ipAddressRow(a *networkingv1.IPAddress, now metav1.Time) []any {
	parent := columns.None
	if ref := a.Spec.ParentRef; ref != nil {
		parent = strings.ToLower(ref.Resource)
		if ref.Group != "" {
			parent += "." + ref.Group
		}
		if ref.Namespace != "" {
			parent += "/" + ref.Namespace
		}
		parent += "/" + ref.Name
	}
	return []any{a.Name, parent, columns.AgeOf(a, now)}
}

var serviceCIDRColumns = columns.Define("Name", "CIDRs@spec.cidrs", "Age")

func serviceCIDRRow(c *networkingv1.ServiceCIDR, now metav1.Time) []any {
	return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), columns.AgeOf(c, now)}
}

var endpointSliceColumns = columns.Define("Name", "AddressType@addressType", "Ports@ports", "Endpoints@endpoints", "Age")

func endpointSliceRow(s *discoveryv1.EndpointSlice, now metav1.Time) []any {
	var ports, addresses []string
	for _, p := range s.Ports {
		port := validate.Deref(p.Name)
		if p.Port != nil {
			port = strconv.Itoa(int(*p.Port))
		}
		ports = append(ports, port)
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return []any{s.Name, string(s.AddressType), cmp.Or(columns.FirstFew(ports, 3, columns.Unset), columns.Unset), columns.FirstFew(addresses, 3, columns.Unset), columns.AgeOf(s, now)}
}

var roleBindingColumns = columns.Define("Name", "Role=RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
	"Age", "+Users=Users in the roleBinding", "+Groups=Groups in the roleBinding", "+ServiceAccounts=ServiceAccounts in the roleBinding")

var clusterRoleBindingColumns = columns.Define("Name", "Role=RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
	"Age", "+Users=Users in the clusterRoleBinding", "+Groups=Groups in the clusterRoleBinding", "+ServiceAccounts=ServiceAccounts in the clusterRoleBinding")

func roleBindingRow(b *rbacv1.RoleBinding, now metav1.Time) []any {
	return bindingRow(b, b.RoleRef, b.Subjects, now)
}

func clusterRoleBindingRow(b *rbacv1.ClusterRoleBinding, now metav1.Time) []any {
	return bindingRow(b, b.RoleRef, b.Subjects, now)
}

func bindingRow(b metav1.Object, ref rbacv1.RoleRef, subjects []rbacv1.Subject, now metav1.Time) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		b.GetName(), ref.Kind + "/" + ref.Name, columns.AgeOf(b, now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}

const (
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

const defaultVACAnnotation = "volumeattributesclass.alpha.kubernetes.io/is-default-class"

var storageClassColumns = columns.Define("Name", "Provisioner@provisioner", "ReclaimPolicy@reclaimPolicy", "VolumeBindingMode@volumeBindingMode", "AllowVolumeExpansion@allowVolumeExpansion", "Age")

func storageClassRow(c *storagev1.StorageClass, now metav1.Time) []any {
	name := c.Name
	if c.Annotations[defaultClassAnnotation] == "true" || c.Annotations[betaDefaultClassAnnotation] == "true" {
		name += " (default)"
	}
	policy, mode := string(corev1.PersistentVolumeReclaimDelete), columns.Unset
	if c.ReclaimPolicy != nil {
		policy = string(*c.ReclaimPolicy)
	}
	if c.VolumeBindingMode != nil {
		mode = string(*c.VolumeBindingMode)
	}
	return []any{name, c.Provisioner, policy, mode, validate.Deref(c.AllowVolumeExpansion), columns.AgeOf(c, now)}
}

var volumeAttributesColumns = columns.Define("Name", "DriverName@driverName", "Age")

func volumeAttributesRow(c *storagev1.VolumeAttributesClass, now metav1.Time) []any {
	name := c.Name
	if c.Annotations[defaultVACAnnotation] == "true" {
		name += " (default)"
	}
	return []any{name, c.DriverName, columns.AgeOf(c, now)}
}

var csiDriverColumns = columns.Define("Name", "AttachRequired:boolean@spec.attachRequired", "PodInfoOnMount:boolean@spec.podInfoOnMount", "StorageCapacity:boolean@spec.storageCapacity",
	"TokenRequests@spec.tokenRequests", "RequiresRepublish:boolean@spec.requiresRepublish", "Modes@spec.volumeLifecycleModes", "Age")

func csiDriverRow(d *storagev1.CSIDriver, now metav1.Time) []any {
	var modes, tokens []string
	for _, m := range d.Spec.VolumeLifecycleModes {
		modes = append(modes, string(m))
	}
	for _, t := range d.Spec.TokenRequests {
		tokens = append(tokens, t.Audience)
	}
	audiences := columns.Unset
	if len(tokens) > 0 {
		audiences = strings.Join(tokens, ",")
	}
	attach := d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
	return []any{
		d.Name, attach, validate.Deref(d.Spec.PodInfoOnMount), validate.Deref(d.Spec.StorageCapacity), audiences, validate.Deref(d.Spec.RequiresRepublish),
		columns.OrNone(strings.Join(modes, ",")), columns.AgeOf(d, now),
	}
}

var csiNodeColumns = columns.Define("Name", "Drivers:integer=Drivers indicates the number of CSI drivers registered on the node", "Age")

func csiNodeRow(n *storagev1.CSINode, now metav1.Time) []any {
	return []any{n.Name, int64(len(n.Spec.Drivers)), columns.AgeOf(n, now)}
}

var volumeAttachmentColumns = columns.Define("Name", "Attacher@spec.attacher", "PV@spec.source.persistentVolumeName", "Node@spec.nodeName", "Attached:boolean@status.attached", "Age")

func volumeAttachmentRow(a *storagev1.VolumeAttachment, now metav1.Time) []any {
	return []any{a.Name, a.Spec.Attacher, validate.Deref(a.Spec.Source.PersistentVolumeName), a.Spec.NodeName, a.Status.Attached, columns.AgeOf(a, now)}
}

var priorityClassColumns = columns.Define("Name", "Value:integer@value", "Global-Default:boolean@globalDefault", "Age", "PreemptionPolicy@preemptionPolicy")

func priorityClassRow(c *schedulingv1.PriorityClass, now metav1.Time) []any {
	return []any{c.Name, int64(c.Value), c.GlobalDefault, columns.AgeOf(c, now), string(validate.Deref(c.PreemptionPolicy))}
}

var leaseColumns = columns.Define("Name", "Holder@spec.holderIdentity", "Age")

func leaseRow(l *coordinationv1.Lease, now metav1.Time) []any {
	return []any{l.Name, validate.Deref(l.Spec.HolderIdentity), columns.AgeOf(l, now)}
}

var runtimeClassColumns = columns.Define("Name", "Handler=", "Age")

func runtimeClassRow(c *nodev1.RuntimeClass, now metav1.Time) []any {
	return []any{c.Name, c.Handler, columns.AgeOf(c, now)}
}

var certificateRequestColumns = columns.Define("Name", "Age", "SignerName="+certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()["signerName"], "Requestor=Base64-encoded PKCS#10 CSR data",
	"RequestedDuration@spec.expirationSeconds", "Condition=Conditions applied to the request, such as approval or denial.")

func certificateRequestRow(c *certificatesv1.CertificateSigningRequest, now metav1.Time) []any {
	wanted := columns.None
	if s := c.Spec.ExpirationSeconds; s != nil {
		wanted = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{c.Name, columns.AgeOf(c, now), columns.OrNone(c.Spec.SignerName), c.Spec.Username, wanted, certificateCondition(c)}
}

func certificateCondition(c *certificatesv1.CertificateSigningRequest) string {
	var approved, denied, failed bool
	for _, condition := range c.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved:
			approved = true
		case certificatesv1.CertificateDenied:
			denied = true
		case certificatesv1.CertificateFailed:
			failed = true
		}
	}
	text := "Pending"
	switch {
	case denied:
		text = "Denied"
	case approved:
		text = "Approved"
	}
	if failed {
		text += ",Failed"
	}
	if len(c.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}

var webhooksColumns = columns.Define("Name", "Webhooks:integer=Webhooks indicates the number of webhooks registered in this configuration", "Age")

func validatingWebhooksRow(c *admissionregistrationv1.ValidatingWebhookConfiguration, now metav1.Time) []any {
	return []any{c.Name, int64(len(c.Webhooks)), columns.AgeOf(c, now)}
}

func mutatingWebhooksRow(c *admissionregistrationv1.MutatingWebhookConfiguration, now metav1.Time) []any {
	return []any{c.Name, int64(len(c.Webhooks)), columns.AgeOf(c, now)}
}

var validatingPolicyColumns = columns.Define("Name", "Validations:integer=Validations indicates the number of validation rules defined in this configuration",
	"ParamKind=ParamKind specifies the kind of resources used to parameterize this policy", "Age")

func validatingPolicyRow(p *admissionregistrationv1.ValidatingAdmissionPolicy, now metav1.Time) []any {
	return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), columns.AgeOf(p, now)}
}

var mutatingPolicyColumns = columns.Define("Name", "Mutations:integer=Mutation indicates the number of mutations rules defined in this configuration",
	"ParamKind=ParamKind specifies the kind of resources used to parameterize this policy", "Age")

func mutatingPolicyRow(p *admissionregistrationv1.MutatingAdmissionPolicy, now metav1.Time) []any {
	return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), columns.AgeOf(p, now)}
}

func paramKind(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return columns.Unset
	}
	return k.APIVersion + "/" + k.Kind
}

var policyBindingColumns = columns.Define("Name", "PolicyName=PolicyName indicates the policy definition which the policy binding binded to",
	"ParamRef=ParamRef indicates the param resource which sets the configuration param", "Age")

func validatingPolicyBindingRow(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding, now metav1.Time) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), columns.AgeOf(b, now)}
}

func mutatingPolicyBindingRow(b *admissionregistrationv1.MutatingAdmissionPolicyBinding, now metav1.Time) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), columns.AgeOf(b, now)}
}

func paramRef(r *admissionregistrationv1.ParamRef) string {
	switch {
	case r == nil:
		return columns.Unset
	case r.Name == "":
		return metav1.FormatLabelSelector(r.Selector)
	case r.Namespace == "":
		return "*/" + r.Name // the parameter of the written object's namespace
	}
	return r.Namespace + "/" + r.Name
}

var flowSchemaColumns = columns.Define("Name", "PriorityLevel@spec.priorityLevelConfiguration.name", "MatchingPrecedence@spec.matchingPrecedence", "DistinguisherMethod@spec.distinguisherMethod", "Age",
	"MissingPL=references a broken or non-existent PriorityLevelConfiguration")

func flowSchemaRow(f *flowcontrolv1.FlowSchema, now metav1.Time) []any {
	method, missing := columns.None, "?"
	if f.Spec.DistinguisherMethod != nil {
		method = string(f.Spec.DistinguisherMethod.Type)
	}
	for _, c := range f.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			missing = string(c.Status)
		}
	}
	return []any{f.Name, f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), method, columns.AgeOf(f, now), missing}
}

// byPrecedence orders flow schemas as requests are matched against them.
func byPrecedence(a, b *flowcontrolv1.FlowSchema) int {
	return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), strings.Compare(a.Name, b.Name))
}

var priorityLevelColumns = columns.Define("Name", "Type@spec.type", "NominalConcurrencyShares@spec.limited.nominalConcurrencyShares", "Queues@spec.limited.limitResponse.queuing.queues",
	"HandSize@spec.limited.limitResponse.queuing.handSize", "QueueLengthLimit@spec.limited.limitResponse.queuing.queueLengthLimit", "Age")

func priorityLevelRow(p *flowcontrolv1.PriorityLevelConfiguration, now metav1.Time) []any {
	var shares, queues, hand, length any = columns.None, columns.None, columns.None, columns.None
	if l := p.Spec.Limited; l != nil {
		shares = int64(validate.Deref(l.NominalConcurrencyShares))
		if q := l.LimitResponse.Queuing; q != nil {
			queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
		}
	}
	return []any{p.Name, string(p.Spec.Type), shares, queues, hand, length, columns.AgeOf(p, now)}
}

var apiServiceColumns = columns.Define("Name", "Service=The reference to the service that hosts this API endpoint.", "Available=Whether this service is available.", "Age")

func apiServiceRow(a *apiregistrationv1.APIService, now metav1.Time) []any {
	service, available := "Local", string(apiregistrationv1.ConditionUnknown)
	if s := a.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	}
	for _, c := range a.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			available = string(c.Status)
			if c.Status != apiregistrationv1.ConditionTrue {
				available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
			}
		}
	}
	return []any{a.Name, service, available, columns.AgeOf(a, now)}
}

var resourceClaimColumns = columns.Define("Name", "State=A summary of the current state (allocated, pending, reserved, etc.).", "Age")

func resourceClaimRow(c *resourcev1.ResourceClaim, now metav1.Time) []any {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	if c.Status.Allocation == nil {
		if c.DeletionTimestamp == nil {
			states = append(states, "pending")
		}
	} else {
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	}
	return []any{c.Name, strings.Join(states, ","), columns.AgeOf(c, now)}
}

var resourceSliceColumns = columns.Define("Name", "Node@spec.nodeName", "Driver@spec.driver", "Pool@spec.pool.name", "Age")

func resourceSliceRow(s *resourcev1.ResourceSlice, now metav1.Time) []any {
	return []any{s.Name, validate.Deref(s.Spec.NodeName), s.Spec.Driver, s.Spec.Pool.Name, columns.AgeOf(s, now)}
}

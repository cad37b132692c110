package check

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// owners follows the owners of an object. They are in its namespace, or have none.
func (f *follower) owners() {
	for i, owner := range f.object.accessor().GetOwnerReferences() {
		path := fmt.Sprintf("metadata.ownerReferences[%d]", i)
		gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		k, ok := f.kinds.find(gvk)
		if !ok {
			if u := f.kinds.explain(gvk, f.Closed); u.severity == Error {
				f.object.add(Finding{Severity: Warning, Path: path + "." + u.field, Message: u.message + "; without its owner the object is deleted", Nearest: u.nearest}, find(f.object.node, path+"."+u.field).mark())
			}
			continue
		}
		t := target{GroupKind: gvk.GroupKind(), name: owner.Name}
		if k.Namespaced {
			if f.namespace == "" {
				f.object.note(Warning, path+".kind", fmt.Sprintf("a %s has a namespace, and cannot own an object without one: the object is deleted", owner.Kind))
				continue
			}
			t.namespace = f.namespace
		}
		f.to(path+".name", t)
	}
}

func kindOf(group, kind string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: kind} }

// serviceOf refers to a Service in a namespace.
func (f *follower) serviceOf(path, namespace, name string) {
	f.to(path, target{GroupKind: kindOf("", "Service"), namespace: namespace, name: name})
}

// bindings follows references of kinds that bind others.
func (f *follower) bindings() {
	switch o := f.object.hub.(type) {
	case *corev1.PersistentVolume:
		f.volumeBinding(o)
	case *corev1.ServiceAccount:
		for i, s := range o.ImagePullSecrets {
			f.core(fmt.Sprintf("imagePullSecrets[%d].name", i), "Secret", s.Name)
		}
		for i, s := range o.Secrets {
			f.core(fmt.Sprintf("secrets[%d].name", i), "Secret", s.Name)
		}
	case *discoveryv1.EndpointSlice:
		f.core("metadata.labels["+discoveryv1.LabelServiceName+"]", "Service", o.Labels[discoveryv1.LabelServiceName])
	case *networkingv1.NetworkPolicy:
		f.peers(o)
	case *apiregistrationv1.APIService:
		if s := o.Spec.Service; s != nil {
			f.serviceOf("spec.service.name", s.Namespace, s.Name)
		}
	case *apiextensionsv1.CustomResourceDefinition:
		if c := o.Spec.Conversion; c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil && c.Webhook.ClientConfig.Service != nil {
			s := c.Webhook.ClientConfig.Service
			f.serviceOf("spec.conversion.webhook.clientConfig.service.name", s.Namespace, s.Name)
		}
	case *resourcev1.ResourceClaim:
		f.devices("spec", &o.Spec)
	case *resourcev1.ResourceClaimTemplate:
		f.devices("spec.spec", &o.Spec.Spec)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		if p, ok := f.policy("ValidatingAdmissionPolicy", o.Spec.PolicyName).(*admissionregistrationv1.ValidatingAdmissionPolicy); ok {
			f.parameters(o.Spec.ParamRef, p.Spec.ParamKind)
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		if p, ok := f.policy("MutatingAdmissionPolicy", o.Spec.PolicyName).(*admissionregistrationv1.MutatingAdmissionPolicy); ok {
			f.parameters(o.Spec.ParamRef, p.Spec.ParamKind)
		}
	}
}

func (f *follower) policy(kind, name string) any {
	if o := f.index.objects[target{GroupKind: kindOf("admissionregistration.k8s.io", kind), name: name}]; o != nil {
		return o.hub
	}
	return nil
}

// parameters follows a binding to the parameters of its policy.
func (f *follower) parameters(ref *admissionregistrationv1.ParamRef, kind *admissionregistrationv1.ParamKind) {
	if ref == nil || kind == nil || ref.Name == "" {
		return
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	k, ok := f.kinds.find(gvk)
	if !ok || k.Namespaced && ref.Namespace == "" {
		return // the parameters are in the namespace of the judged object
	}
	f.to("spec.paramRef.name", target{GroupKind: gvk.GroupKind(), namespace: ref.Namespace, name: ref.Name})
}

func (f *follower) devices(path string, spec *resourcev1.ResourceClaimSpec) {
	for i := range spec.Devices.Requests {
		at := fmt.Sprintf("%s.devices.requests[%d]", path, i)
		if exact := spec.Devices.Requests[i].Exactly; exact != nil {
			f.class(at+".exactly.deviceClassName", "resource.k8s.io", "DeviceClass", exact.DeviceClassName)
		}
		for j := range spec.Devices.Requests[i].FirstAvailable {
			f.class(fmt.Sprintf("%s.firstAvailable[%d].deviceClassName", at, j), "resource.k8s.io", "DeviceClass", spec.Devices.Requests[i].FirstAvailable[j].DeviceClassName)
		}
	}
}

// peers follows the namespaces that a NetworkPolicy names.
func (f *follower) peers(o *networkingv1.NetworkPolicy) {
	peer := func(path string, p *networkingv1.NetworkPolicyPeer) {
		if p.NamespaceSelector == nil {
			return
		}
		f.to(path+".namespaceSelector.matchLabels["+corev1.LabelMetadataName+"]",
			target{GroupKind: kindOf("", "Namespace"), name: p.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]})
	}
	for i := range o.Spec.Ingress {
		for j := range o.Spec.Ingress[i].From {
			peer(fmt.Sprintf("spec.ingress[%d].from[%d]", i, j), &o.Spec.Ingress[i].From[j])
		}
	}
	for i := range o.Spec.Egress {
		for j := range o.Spec.Egress[i].To {
			peer(fmt.Sprintf("spec.egress[%d].to[%d]", i, j), &o.Spec.Egress[i].To[j])
		}
	}
}

// volumeBinding follows a volume to the claim that it is reserved for.
func (f *follower) volumeBinding(v *corev1.PersistentVolume) {
	f.class("spec.storageClassName", "storage.k8s.io", "StorageClass", v.Spec.StorageClassName)
	ref := v.Spec.ClaimRef
	if ref == nil {
		return
	}
	t := target{GroupKind: kindOf("", "PersistentVolumeClaim"), namespace: ref.Namespace, name: ref.Name}
	f.to("spec.claimRef.name", t)
	found := f.index.objects[t]
	if found == nil {
		return
	}
	if c, ok := found.hub.(*corev1.PersistentVolumeClaim); ok && c.Spec.VolumeName != "" && c.Spec.VolumeName != v.Name {
		f.object.note(Warning, "spec.claimRef.name", fmt.Sprintf("the claim %q names another volume, %q: it waits for ever", c.Name, c.Spec.VolumeName))
	}
}

// claimBinding follows a claim to the volume that it names, and compares the two.
func (f *follower) claimBinding(c *corev1.PersistentVolumeClaim) {
	f.core("spec.dataSource.name", "PersistentVolumeClaim", sourceClaim(c))
	if class := c.Spec.VolumeAttributesClassName; class != nil {
		f.class("spec.volumeAttributesClassName", "storage.k8s.io", "VolumeAttributesClass", *class)
	}
	t := target{GroupKind: kindOf("", "PersistentVolume"), name: c.Spec.VolumeName}
	f.to("spec.volumeName", t)
	found := f.index.objects[t]
	if found == nil {
		return
	}
	v, ok := found.hub.(*corev1.PersistentVolume)
	if !ok {
		return
	}
	waits := func(path, format string, args ...any) {
		f.object.note(Warning, path, fmt.Sprintf("the volume %q ", v.Name)+fmt.Sprintf(format, args...)+": the claim waits for ever")
	}
	if ref := v.Spec.ClaimRef; ref != nil && (ref.Name != c.Name || ref.Namespace != f.namespace) {
		waits("spec.volumeName", "is reserved for the claim %s/%s", ref.Namespace, ref.Name)
	}
	if class := c.Spec.StorageClassName; class != nil && *class != v.Spec.StorageClassName {
		waits("spec.storageClassName", "has the storage class %q", v.Spec.StorageClassName)
	}
	want, have := c.Spec.Resources.Requests[corev1.ResourceStorage], v.Spec.Capacity[corev1.ResourceStorage]
	if want.Cmp(have) > 0 {
		waits("spec.resources.requests.storage", "has %s", have.String())
	}
	for i, mode := range c.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, mode) {
			waits(fmt.Sprintf("spec.accessModes[%d]", i), "allows %s", strings.Trim(fmt.Sprint(v.Spec.AccessModes), "[]"))
		}
	}
	if a, b := c.Spec.VolumeMode, v.Spec.VolumeMode; a != nil && b != nil && *a != *b {
		waits("spec.volumeMode", "has the mode %s", *b)
	}
	if s := c.Spec.Selector; s != nil {
		if selector, err := metav1.LabelSelectorAsSelector(s); err == nil && !selector.Matches(labels.Set(v.Labels)) {
			waits("spec.selector", "does not have these labels")
		}
	}
}

func sourceClaim(c *corev1.PersistentVolumeClaim) string {
	if s := c.Spec.DataSource; s != nil && s.Kind == "PersistentVolumeClaim" && (s.APIGroup == nil || *s.APIGroup == "") {
		return s.Name
	}
	return ""
}

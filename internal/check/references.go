package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// target is an object that another one refers to.
type target struct {
	schema.GroupKind
	namespace, name string
}

// builtIn reports whether every cluster has the object, or knarr does.
func (t target) builtIn() bool {
	switch t.Kind {
	case "ServiceAccount":
		return t.name == "default"
	case "ConfigMap":
		return t.name == "kube-root-ca.crt"
	case "PriorityClass", "ClusterRole", "Role":
		return strings.HasPrefix(t.name, "system") || t.name == "cluster-admin" || t.name == "admin" || t.name == "edit" || t.name == "view"
	case "Namespace":
		return t.name == "default" || strings.HasPrefix(t.name, "kube-")
	case "Service":
		return t.name == "kubernetes" && t.namespace == "default"
	case "StorageClass":
		return t.name == ""
	}
	return false
}

// index finds the objects of the files by kind, namespace and name.
type index struct {
	objects map[target]*object
	names   map[target][]string // of a kind in a namespace, for a target without name
	// pods are the pods of each namespace, and those with a label.
	pods    map[string][]selectable
	labeled map[label][]selectable
	// budget bounds the comparisons of names and pods for suggestions. So the cost of many errors
	// stays linear.
	budget int
}

// selectable is a template with the labels of its pods.
type selectable struct {
	template
	labels labels.Set
}

type label struct{ namespace, key, value string }

// maxCompared takes some seconds.
const maxCompared = 300_000

func (r *run) index() *index {
	x := &index{objects: map[target]*object{}, names: map[target][]string{}, pods: map[string][]selectable{}, labeled: map[label][]selectable{}, budget: maxCompared}
	for _, o := range r.objects {
		if o.kind == nil {
			continue
		}
		t := target{GroupKind: o.kind.gvk.GroupKind(), name: o.head.Metadata.Name}
		if o.kind.Namespaced {
			if t.namespace = o.head.Metadata.Namespace; t.namespace == "" {
				t.namespace = r.Namespace
			}
		}
		x.objects[t] = o
		place := t
		place.name = ""
		x.names[place] = append(x.names[place], t.name)
		if o.hub != nil {
			x.addPods(o)
		}
	}
	return x
}

func (x *index) addPods(o *object) {
	t, ok := podsOf(o.hub)
	if !ok {
		return
	}
	namespace, s := o.accessor().GetNamespace(), selectable{t, t.labelSet(o)}
	x.pods[namespace] = append(x.pods[namespace], s)
	for key, value := range s.labels {
		at := label{namespace, key, value}
		x.labeled[at] = append(x.labeled[at], s)
	}
}

// spend reports whether n more comparisons are within the budget.
func (x *index) spend(n int) bool {
	x.budget -= n
	return x.budget >= 0
}

// follow follows the references of all objects. Objects that cannot be decoded are known by their
// names.
func (r *run) follow() {
	x := r.index()
	for _, o := range r.objects {
		if o.hub == nil || o.reference || r.ctx.Err() != nil {
			continue
		}
		f := follower{run: r, index: x, object: o, namespace: o.accessor().GetNamespace()}
		if t, ok := podsOf(o.hub); ok {
			f.pods(t)
		}
		f.others()
	}
}

// follower follows the references of one object.
type follower struct {
	*run
	index     *index
	object    *object
	namespace string
}

// to reports a reference to an object that is not in the files: an error if they are the whole
// cluster, a warning if they have other objects of this kind in the namespace, and else nothing.
func (f *follower) to(path string, t target) {
	if t.name == "" || t.builtIn() || f.index.objects[t] != nil {
		return
	}
	place := t
	place.name = ""
	names := f.index.names[place]
	if !f.Closed && len(names) == 0 {
		return
	}
	severity := Warning
	if f.Closed {
		severity = Error
	}
	where := ""
	if t.namespace != "" {
		where = fmt.Sprintf(" in namespace %q", t.namespace)
	}
	at := find(f.object.node, path)
	finding := Finding{Severity: severity, Path: path, Message: fmt.Sprintf("no file has the %s %q%s", t.Kind, t.name, where)}
	if f.index.spend(len(names)) {
		finding.Nearest = nearest(t.name, names)
	}
	if len(finding.Nearest) == 1 && at.whole {
		finding.fix = f.object.replace(at.value, finding.Nearest[0])
	}
	node := at.mark()
	if at.whole {
		node = at.value
	}
	f.object.add(finding, node)
}

// core refers to an object of the core group in the namespace of the object.
func (f *follower) core(path, kind, name string) {
	f.to(path, target{GroupKind: corev1.SchemeGroupVersion.WithKind(kind).GroupKind(), namespace: f.namespace, name: name})
}

func (f *follower) class(path, group, kind, name string) {
	f.to(path, target{GroupKind: schema.GroupKind{Group: group, Kind: kind}, name: name})
}

// others follows the references of kinds without pods.
func (f *follower) others() {
	if ns := f.namespace; ns != "" && find(f.object.node, "metadata.namespace").whole {
		f.to("metadata.namespace", target{GroupKind: corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind(), name: ns})
	}
	switch o := f.object.hub.(type) {
	case *corev1.Service:
		f.service(o)
	case *networkingv1.Ingress:
		f.ingress(o)
	case *corev1.PersistentVolumeClaim:
		f.claim("spec", &o.Spec)
		f.claimBinding(o)
	case *appsv1.StatefulSet:
		f.core("spec.serviceName", "Service", o.Spec.ServiceName)
		for i := range o.Spec.VolumeClaimTemplates {
			f.claim(fmt.Sprintf("spec.volumeClaimTemplates[%d].spec", i), &o.Spec.VolumeClaimTemplates[i].Spec)
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		f.scaled(o)
	case *rbacv1.RoleBinding:
		f.role(o.RoleRef)
		f.subjects(o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		f.role(o.RoleRef)
		f.subjects(o.Subjects)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		f.class("spec.policyName", "admissionregistration.k8s.io", "ValidatingAdmissionPolicy", o.Spec.PolicyName)
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		f.class("spec.policyName", "admissionregistration.k8s.io", "MutatingAdmissionPolicy", o.Spec.PolicyName)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			f.webhook(i, &o.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			f.webhook(i, &o.Webhooks[i].ClientConfig)
		}
	}
	f.selectors()
	f.owners()
	f.bindings()
	f.gateway()
}

func (f *follower) claim(path string, spec *corev1.PersistentVolumeClaimSpec) {
	if name := spec.StorageClassName; name != nil && spec.VolumeName == "" {
		f.class(path+".storageClassName", "storage.k8s.io", "StorageClass", *name)
	}
}

func (f *follower) webhook(i int, c *admissionregistrationv1.WebhookClientConfig) {
	if s := c.Service; s != nil {
		f.to(fmt.Sprintf("webhooks[%d].clientConfig.service.name", i), target{GroupKind: corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), namespace: s.Namespace, name: s.Name})
	}
}

// scaled follows the target of an autoscaler.
func (f *follower) scaled(o *autoscalingv2.HorizontalPodAutoscaler) {
	ref := o.Spec.ScaleTargetRef
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	k, ok := f.kinds.find(gvk)
	if !ok {
		u := f.kinds.explain(gvk, f.Closed)
		f.object.add(Finding{Severity: u.severity, Path: "spec.scaleTargetRef." + u.field, Message: u.message, Nearest: u.nearest}, find(f.object.node, "spec.scaleTargetRef."+u.field).mark())
		return
	}
	if _, scales := k.Subresource("scale"); !scales {
		f.object.fail("spec.scaleTargetRef.kind", fmt.Sprintf("a %s has no replicas to scale; allowed are kinds with the subresource scale, such as Deployment and StatefulSet", gvk.Kind))
		return
	}
	f.to("spec.scaleTargetRef.name", target{GroupKind: gvk.GroupKind(), namespace: f.namespace, name: ref.Name})
}

func (f *follower) role(ref rbacv1.RoleRef) {
	t := target{GroupKind: schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}, name: ref.Name}
	if ref.Kind == "Role" {
		t.namespace = f.namespace
	}
	f.to("roleRef.name", t)
}

func (f *follower) subjects(subjects []rbacv1.Subject) {
	for i, s := range subjects {
		if s.Kind == rbacv1.ServiceAccountKind {
			f.to(fmt.Sprintf("subjects[%d].name", i), target{GroupKind: corev1.SchemeGroupVersion.WithKind("ServiceAccount").GroupKind(), namespace: s.Namespace, name: s.Name})
		}
	}
}

// ingress follows the backends and the class of an Ingress.
func (f *follower) ingress(o *networkingv1.Ingress) {
	if o.Spec.IngressClassName != nil {
		f.class("spec.ingressClassName", "networking.k8s.io", "IngressClass", *o.Spec.IngressClassName)
	}
	for i, t := range o.Spec.TLS {
		f.core(fmt.Sprintf("spec.tls[%d].secretName", i), "Secret", t.SecretName)
	}
	if b := o.Spec.DefaultBackend; b != nil {
		f.backend("spec.defaultBackend", b)
	}
	for i, rule := range o.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j := range rule.HTTP.Paths {
			f.backend(fmt.Sprintf("spec.rules[%d].http.paths[%d].backend", i, j), &rule.HTTP.Paths[j].Backend)
		}
	}
}

// backend follows a backend to its Service and the Service's port.
func (f *follower) backend(path string, b *networkingv1.IngressBackend) {
	if b.Service == nil {
		return
	}
	t := target{GroupKind: corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), namespace: f.namespace, name: b.Service.Name}
	f.to(path+".service.name", t)
	found := f.index.objects[t]
	if found == nil {
		return
	}
	s, ok := found.hub.(*corev1.Service)
	if !ok || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	var names, ports []string
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			names = append(names, p.Name)
		}
		ports = append(ports, fmt.Sprint(p.Port))
		if want := b.Service.Port; want.Name != "" && want.Name == p.Name || want.Name == "" && want.Number == p.Port {
			return
		}
	}
	if name := b.Service.Port.Name; name != "" {
		f.missing(path+".service.port.name", fmt.Sprintf("the Service %q has no port named %q; it has %s", s.Name, name, listed(names)), nearest(name, names))
		return
	}
	f.missing(path+".service.port.number", fmt.Sprintf("the Service %q has no port %d; it has %s", s.Name, b.Service.Port.Number, listed(ports)), nil)
}

// missing reports a reference to a part that an object of the files does not have.
func (f *follower) missing(path, message string, near []string) {
	at := find(f.object.node, path)
	finding := Finding{Severity: Error, Path: path, Message: message, Nearest: near}
	node := at.mark()
	if at.whole {
		node = at.value
		if len(near) == 1 {
			finding.fix = f.object.replace(at.value, near[0])
		}
	}
	f.object.add(finding, node)
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

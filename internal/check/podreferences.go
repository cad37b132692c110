package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pods follows the references of pods.
func (f *follower) pods(t template) {
	spec := t.spec()
	f.core(spec+".serviceAccountName", "ServiceAccount", t.Spec.ServiceAccountName)
	f.class(spec+".priorityClassName", "scheduling.k8s.io", "PriorityClass", t.Spec.PriorityClassName)
	if t.Spec.RuntimeClassName != nil {
		f.class(spec+".runtimeClassName", "node.k8s.io", "RuntimeClass", *t.Spec.RuntimeClassName)
	}
	for i, s := range t.Spec.ImagePullSecrets {
		f.core(fmt.Sprintf("%s.imagePullSecrets[%d].name", spec, i), "Secret", s.Name)
	}
	for i, c := range t.Spec.ResourceClaims {
		at := fmt.Sprintf("%s.resourceClaims[%d]", spec, i)
		if c.ResourceClaimName != nil {
			f.to(at+".resourceClaimName", target{GroupKind: kindOf("resource.k8s.io", "ResourceClaim"), namespace: f.namespace, name: *c.ResourceClaimName})
		}
		if c.ResourceClaimTemplateName != nil {
			f.to(at+".resourceClaimTemplateName", target{GroupKind: kindOf("resource.k8s.io", "ResourceClaimTemplate"), namespace: f.namespace, name: *c.ResourceClaimTemplateName})
		}
	}
	for i := range t.Spec.Volumes {
		f.volume(fmt.Sprintf("%s.volumes[%d]", spec, i), &t.Spec.Volumes[i])
	}
	for i := range t.Spec.InitContainers {
		f.container(fmt.Sprintf("%s.initContainers[%d]", spec, i), &t.Spec.InitContainers[i])
	}
	for i := range t.Spec.Containers {
		f.container(fmt.Sprintf("%s.containers[%d]", spec, i), &t.Spec.Containers[i])
	}
}

func optional(b *bool) bool { return b != nil && *b }

func (f *follower) volume(path string, v *corev1.Volume) {
	if s := v.ConfigMap; s != nil && !optional(s.Optional) {
		f.keys(path+".configMap", "name", "ConfigMap", s.Name, s.Items)
	}
	if s := v.Secret; s != nil && !optional(s.Optional) {
		f.keys(path+".secret", "secretName", "Secret", s.SecretName, s.Items)
	}
	if s := v.PersistentVolumeClaim; s != nil {
		f.core(path+".persistentVolumeClaim.claimName", "PersistentVolumeClaim", s.ClaimName)
	}
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		at := fmt.Sprintf("%s.projected.sources[%d]", path, i)
		if s := v.Projected.Sources[i].ConfigMap; s != nil && !optional(s.Optional) {
			f.keys(at+".configMap", "name", "ConfigMap", s.Name, s.Items)
		}
		if s := v.Projected.Sources[i].Secret; s != nil && !optional(s.Optional) {
			f.keys(at+".secret", "name", "Secret", s.Name, s.Items)
		}
	}
}

// keys refers to a ConfigMap or Secret and the keys of it that a volume shows.
func (f *follower) keys(path, field, kind, name string, items []corev1.KeyToPath) {
	f.core(path+"."+field, kind, name)
	for i := range items {
		f.key(fmt.Sprintf("%s.items[%d].key", path, i), kind, name, items[i].Key)
	}
}

// key refers to a key of a ConfigMap or Secret of the files.
func (f *follower) key(path, kind, name, key string) {
	o := f.index.objects[target{GroupKind: corev1.SchemeGroupVersion.WithKind(kind).GroupKind(), namespace: f.namespace, name: name}]
	if o == nil {
		return
	}
	var have []string
	switch holder := o.hub.(type) {
	case *corev1.ConfigMap:
		have = append(sortedKeys(holder.Data), sortedKeys(holder.BinaryData)...)
	case *corev1.Secret:
		have = append(sortedKeys(holder.Data), sortedKeys(holder.StringData)...)
	default:
		return
	}
	for _, k := range have {
		if k == key {
			return
		}
	}
	f.missing(path, fmt.Sprintf("the %s %q has no key %q; it has %s", kind, name, key, listed(have)), nearest(key, have))
}

func (f *follower) container(path string, c *corev1.Container) {
	for i, e := range c.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", path, i)
		if r := e.ConfigMapRef; r != nil && !optional(r.Optional) {
			f.core(at+".configMapRef.name", "ConfigMap", r.Name)
		}
		if r := e.SecretRef; r != nil && !optional(r.Optional) {
			f.core(at+".secretRef.name", "Secret", r.Name)
		}
	}
	for i, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		at := fmt.Sprintf("%s.env[%d].valueFrom", path, i)
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil && !optional(r.Optional) {
			f.core(at+".configMapKeyRef.name", "ConfigMap", r.Name)
			f.key(at+".configMapKeyRef.key", "ConfigMap", r.Name, r.Key)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil && !optional(r.Optional) {
			f.core(at+".secretKeyRef.name", "Secret", r.Name)
			f.key(at+".secretKeyRef.key", "Secret", r.Name, r.Key)
		}
	}
}

// selected returns the templates of a namespace that a selector selects.
func (f *follower) selected(selector labels.Selector) (list []template) {
	candidates := f.index.pods[f.namespace]
	if requirements, ok := selector.Requirements(); ok {
		for _, r := range requirements {
			if value, exact := selector.RequiresExactMatch(r.Key()); exact {
				candidates = f.index.labeled[label{f.namespace, r.Key(), value}]
				break
			}
		}
	}
	for _, s := range candidates {
		if selector.Matches(s.labels) {
			list = append(list, s.template)
		}
	}
	return list
}

// nothingSelected warns of a selector that selects no pod of the files, if these have pods in the
// namespace.
func (f *follower) nothingSelected(path string, selector labels.Selector) {
	if selector.Empty() {
		return
	}
	if len(f.selected(selector)) > 0 || len(f.index.pods[f.namespace]) == 0 && !f.Closed {
		return
	}
	severity := Warning
	if f.Closed {
		severity = Error
	}
	message := fmt.Sprintf("no pod of the files in namespace %q has the labels %s", f.namespace, selector)
	if near := f.closest(selector); near != "" {
		message += "; the closest pods have " + near
	}
	f.object.note(severity, path, message)
}

// closest returns the values that the pods of the namespace have for the keys of a selector.
func (f *follower) closest(selector labels.Selector) string {
	requirements, _ := selector.Requirements()
	best, found := -1, ""
	if !f.index.spend(len(f.index.pods[f.namespace])) {
		return ""
	}
	for _, pod := range f.index.pods[f.namespace] {
		set := pod.labels
		shared := labels.Set{}
		score := 0
		for _, r := range requirements {
			if set.Has(r.Key()) {
				shared[r.Key()] = set.Get(r.Key())
				score++
			}
			if r.Matches(set) {
				score++
			}
		}
		if len(shared) > 0 && score > best {
			best, found = score, shared.String()
		}
	}
	return found
}

// selectors follows selectors of pods.
func (f *follower) selectors() {
	switch o := f.object.hub.(type) {
	case *policyv1.PodDisruptionBudget:
		f.labelSelector("spec.selector", o.Spec.Selector)
	case *networkingv1.NetworkPolicy:
		f.labelSelector("spec.podSelector", &o.Spec.PodSelector)
	}
}

func (f *follower) labelSelector(path string, s *metav1.LabelSelector) {
	if selector, err := metav1.LabelSelectorAsSelector(s); err == nil {
		f.nothingSelected(path, selector)
	}
}

// service follows the selector of a Service, and its target ports to those of containers.
func (f *follower) service(s *corev1.Service) {
	if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	f.nothingSelected("spec.selector", selector)
	list := f.selected(selector)
	if len(list) == 0 {
		return
	}
	for i, p := range s.Spec.Ports {
		if p.TargetPort.Type == intstr.String {
			f.targetPort(fmt.Sprintf("spec.ports[%d].targetPort", i), p, list)
		}
	}
}

// targetPort reports a named target port that no selected pod has. A numeric one needs no entry in
// containers.
func (f *follower) targetPort(path string, p corev1.ServicePort, list []template) {
	var names []string
	for _, t := range list {
		containers := append([]corev1.Container{}, t.Spec.Containers...)
		for _, c := range t.Spec.InitContainers {
			if c.RestartPolicy != nil {
				containers = append(containers, c)
			}
		}
		for _, c := range containers {
			for _, port := range c.Ports {
				if port.Name == p.TargetPort.StrVal && port.Protocol == p.Protocol {
					return
				}
				if port.Name != "" {
					names = append(names, port.Name)
				}
			}
		}
	}
	f.missing(path, fmt.Sprintf("no container of the selected pods has a %s port named %q; they have %s", p.Protocol, p.TargetPort.StrVal, listed(names)), nearest(p.TargetPort.StrVal, names))
}

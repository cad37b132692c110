package relations

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/architecture"
)

// Objects are the objects that relations are derived from.
type Objects struct {
	Deployments  []appsv1.Deployment
	StatefulSets []appsv1.StatefulSet
	DaemonSets   []appsv1.DaemonSet
	CronJobs     []batchv1.CronJob
	Jobs         []batchv1.Job
	Pods         []corev1.Pod
	Services     []corev1.Service
	ConfigMaps   []corev1.ConfigMap
	Ingresses    []Entry

	Components []*architecture.Component
	Systems    []*architecture.System
	// Flows are the connections that nodes have seen. Counted means that nodes count.
	Flows   []architecture.Flow
	Counted bool
	// Beyond are the Services without selector by the addresses of their EndpointSlices.
	Beyond map[string]Object
	// Gone are ends of connections that no longer exist. Flows has none of theirs.
	Gone []Object
}

// Entry is a way in from outside, by an Ingress or a route of the Gateway API.
type Entry struct {
	Object   Object
	Hosts    []string
	Backends []Object // Services
}

// workload is one object that makes pods, with their template.
type workload struct {
	object   Object
	labels   map[string]string // of the pods
	spec     *corev1.PodSpec
	data     []string // claims that the object makes for its pods
	replicas int
	selector *metav1.LabelSelector
}

// id returns the component that the workload belongs to, and the component's system: a declared
// component that selects its pods, or the one that its labels name.
func (b *builder) id(w *workload) (id ID, system string) {
	if refs := b.model.Of(w.object.Namespace, w.labels); len(refs) > 0 {
		return ID(refs[0]), b.systemOf(refs[0])
	}
	return w.id()
}

// id returns the component that the labels name. They are the recommended ones of the Kubernetes
// documentation, and two common older ones.
func (w *workload) id() (id ID, system string) {
	name := w.object.Name
	for _, key := range []string{"app.kubernetes.io/name", "app", "k8s-app"} {
		if v := w.labels[key]; v != "" {
			name = v
			break
		}
	}
	if instance := w.labels["app.kubernetes.io/instance"]; instance != "" && instance != name {
		name = instance + "-" + strings.TrimPrefix(name, instance+"-")
	}
	if part := w.labels["app.kubernetes.io/component"]; part != "" && part != name && !strings.HasSuffix(name, "-"+part) {
		name += "-" + part
	}
	system = w.labels["app.kubernetes.io/part-of"]
	if system == "" {
		system = w.object.Namespace
	}
	return ID{w.object.Namespace, name}, system
}

// workloads returns all objects that make pods and that no other object has made.
func (o *Objects) workloads() []workload {
	var out []workload
	add := func(kind string, m *metav1.ObjectMeta, t *corev1.PodTemplateSpec, replicas int32, selector *metav1.LabelSelector, data ...string) {
		if metav1.GetControllerOf(m) != nil {
			return
		}
		out = append(out, workload{Object{kind, m.Namespace, m.Name}, t.Labels, &t.Spec, data, int(replicas), selector})
	}
	count := func(n *int32) int32 {
		if n == nil {
			return 1
		}
		return *n
	}
	for i := range o.Deployments {
		d := &o.Deployments[i]
		add("Deployment", &d.ObjectMeta, &d.Spec.Template, count(d.Spec.Replicas), d.Spec.Selector)
	}
	for i := range o.StatefulSets {
		s := &o.StatefulSets[i]
		var claims []string
		for _, c := range s.Spec.VolumeClaimTemplates {
			claims = append(claims, c.Name+"-"+s.Name+"-*")
		}
		add("StatefulSet", &s.ObjectMeta, &s.Spec.Template, count(s.Spec.Replicas), s.Spec.Selector, claims...)
	}
	for i := range o.DaemonSets {
		d := &o.DaemonSets[i]
		add("DaemonSet", &d.ObjectMeta, &d.Spec.Template, d.Status.DesiredNumberScheduled, d.Spec.Selector)
	}
	for i := range o.CronJobs {
		c := &o.CronJobs[i]
		add("CronJob", &c.ObjectMeta, &c.Spec.JobTemplate.Spec.Template, 0, nil)
	}
	for i := range o.Jobs {
		j := &o.Jobs[i]
		add("Job", &j.ObjectMeta, &j.Spec.Template, j.Status.Active, j.Spec.Selector)
	}
	for i := range o.Pods {
		p := &o.Pods[i]
		t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
		add("Pod", &p.ObjectMeta, &t, 1, nil)
	}
	return out
}

// Derive returns the graph of the objects.
func Derive(o *Objects) *Graph {
	b := newBuilder(o)
	all := o.workloads()
	for i := range all {
		w := &all[i]
		id, system := b.id(w)
		c := b.component(id, system)
		c.Workloads = append(c.Workloads, w.object)
		c.Replicas += w.replicas
		c.Data = append(c.Data, w.data...)
		if len(c.Workloads) == 1 {
			c.Spec.Selector = metav1.LabelSelector{MatchLabels: w.labels}
			if w.selector != nil {
				c.Spec.Selector = *w.selector
			}
		}
		b.references(c, w)
	}
	b.pods(o, all)
	index := b.services(o, all)
	b.calls(o, all, index)
	b.entries(o, index)
	b.declared()
	b.seen(o, all)
	g := b.graph()
	g.Gone = o.Gone
	return g
}

// references records the claims, ConfigMaps and Secrets of a workload's pods.
func (b *builder) references(c *Component, w *workload) {
	settings := func(kind, name string) {
		if name != "" {
			c.Settings = append(c.Settings, Object{kind, w.object.Namespace, name})
		}
	}
	for _, v := range w.spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			c.Data = append(c.Data, v.PersistentVolumeClaim.ClaimName)
		case v.ConfigMap != nil:
			settings("ConfigMap", v.ConfigMap.Name)
		case v.Secret != nil:
			settings("Secret", v.Secret.SecretName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil && s.ConfigMap.Name != "kube-root-ca.crt" {
					settings("ConfigMap", s.ConfigMap.Name)
				}
				if s.Secret != nil {
					settings("Secret", s.Secret.Name)
				}
			}
		}
	}
	for _, k := range containers(w.spec) {
		for _, from := range k.EnvFrom {
			if from.ConfigMapRef != nil {
				settings("ConfigMap", from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				settings("Secret", from.SecretRef.Name)
			}
		}
		for _, e := range k.Env {
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				settings("ConfigMap", e.ValueFrom.ConfigMapKeyRef.Name)
			}
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				settings("Secret", e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
}

// containers returns the containers and init containers.
func containers(spec *corev1.PodSpec) []corev1.Container {
	return append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...)
}

// pods counts the running pods of each component by node.
func (b *builder) pods(o *Objects, all []workload) {
	type choice struct {
		w        *workload
		selector labels.Selector
	}
	byNamespace := map[string][]choice{}
	for i := range all {
		w := &all[i]
		selector, err := metav1.LabelSelectorAsSelector(w.selector)
		if err != nil || w.selector == nil {
			selector = labels.SelectorFromSet(w.labels)
		}
		byNamespace[w.object.Namespace] = append(byNamespace[w.object.Namespace], choice{w, selector})
	}
	for i := range o.Pods {
		p := &o.Pods[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, c := range byNamespace[p.Namespace] {
			own := c.w.object.Kind == "Pod" && c.w.object.Name == p.Name
			if !own && (c.w.object.Kind == "Pod" || c.selector.Empty() || !c.selector.Matches(labels.Set(p.Labels))) {
				continue
			}
			id, _ := b.id(c.w)
			component := b.components[id]
			if p.Spec.NodeName != "" {
				component.Nodes[p.Spec.NodeName]++
			}
			if ready(p) {
				component.Ready++
			}
			break
		}
	}
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

package check

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// template is the pod template of a workload, or a pod itself.
type template struct {
	*metav1.ObjectMeta
	Spec *corev1.PodSpec
	path string // of the template; "" for a pod
}

// spec returns the path of the pod's spec.
func (t template) spec() string { return join(t.path, "spec") }

// templateOf returns the template of a kind that makes pods.
func templateOf(obj runtime.Object) (template, bool) {
	from := func(t *corev1.PodTemplateSpec, path string) (template, bool) {
		return template{&t.ObjectMeta, &t.Spec, path}, true
	}
	switch w := obj.(type) {
	case *appsv1.Deployment:
		return from(&w.Spec.Template, "spec.template")
	case *appsv1.ReplicaSet:
		return from(&w.Spec.Template, "spec.template")
	case *appsv1.StatefulSet:
		return from(&w.Spec.Template, "spec.template")
	case *appsv1.DaemonSet:
		return from(&w.Spec.Template, "spec.template")
	case *corev1.ReplicationController:
		if w.Spec.Template != nil {
			return from(w.Spec.Template, "spec.template")
		}
	case *batchv1.Job:
		return from(&w.Spec.Template, "spec.template")
	case *batchv1.CronJob:
		return from(&w.Spec.JobTemplate.Spec.Template, "spec.jobTemplate.spec.template")
	}
	return template{}, false
}

// podsOf returns the pod of a Pod or the template of a workload.
func podsOf(obj runtime.Object) (template, bool) {
	if pod, ok := obj.(*corev1.Pod); ok {
		return template{&pod.ObjectMeta, &pod.Spec, ""}, true
	}
	return templateOf(obj)
}

// labelSet returns the labels of the pods. A Job and a StatefulSet add some of their own.
func (t template) labelSet(o *object) labels.Set {
	set := maps.Clone(t.Labels)
	if set == nil {
		set = map[string]string{}
	}
	name := o.accessor().GetName()
	switch o.hub.(type) {
	case *batchv1.Job, *batchv1.CronJob:
		for _, key := range []string{"job-name", batchv1.JobNameLabel} {
			set[key] = name
		}
	}
	return set
}

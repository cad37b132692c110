package resource

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// makesPods clears fields of disabled features in a kind's pod spec or pod template, and adds the
// warnings about pods: first the warnings of first, then those of the template, then the kind's own.
func makesPods(s *strategy.Strategy, first ...func(obj, old runtime.Object) []string) *strategy.Strategy {
	s.DropFields(func(obj, old runtime.Object) {
		var before *corev1.PodSpec
		if old != nil {
			before = podSpecOf(old)
		}
		dropPodFields(podSpecOf(obj), before)
	})
	warned := s.Warnings
	s.Warnings = func(obj, old runtime.Object) []string {
		var out []string
		if old == nil {
			out = nameWarnings(obj)
		}
		for _, warnings := range first {
			out = append(out, warnings(obj, old)...)
		}
		out = append(out, podWarnings(obj, old)...)
		if warned != nil {
			out = append(out, warned(obj, old)...)
		}
		return out
	}
	return keepsClaimMetadata(keepsPodAddresses(s))
}

// nameWarnings warns of names that make bad hostnames: the names of these kinds become pod names,
// and pod names become hostnames.
func nameWarnings(obj runtime.Object) []string {
	where := "in Pod names and hostnames"
	switch obj.(type) {
	case *corev1.Pod:
		where = "in the Pod's hostname"
	case *corev1.ReplicationController, *appsv1.ReplicaSet, *appsv1.Deployment, *batchv1.CronJob, *batchv1.Job:
	default:
		return nil
	}
	name := obj.(metav1.Object).GetName()
	if wrong := validation.IsDNS1123Label(name); name != "" && len(wrong) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used %s, which can result in surprising behavior; a DNS label is recommended: %v", where, wrong)}
	}
	return nil
}

func podSpecOf(obj runtime.Object) *corev1.PodSpec {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *corev1.PodTemplate:
		return &o.Template.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return &corev1.PodSpec{}
		}
		return &o.Spec.Template.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return &corev1.PodSpec{}
}

// dropProjections clears fields of the features ClusterTrustBundleProjection and
// PodCertificateRequest, which are off.
func dropProjections(spec, old *corev1.PodSpec) {
	var bundles, certificates bool
	if old != nil {
		eachProjection(old, func(p *corev1.VolumeProjection) {
			bundles, certificates = bundles || p.ClusterTrustBundle != nil, certificates || p.PodCertificate != nil
		})
	}
	eachProjection(spec, func(p *corev1.VolumeProjection) {
		if !bundles {
			p.ClusterTrustBundle = nil
		}
		if !certificates {
			p.PodCertificate = nil
		}
	})
}

func eachProjection(spec *corev1.PodSpec, visit func(*corev1.VolumeProjection)) {
	for i := range spec.Volumes {
		if p := spec.Volumes[i].Projected; p != nil {
			for j := range p.Sources {
				visit(&p.Sources[j])
			}
		}
	}
}

// dropPodFields clears fields of the features GenericWorkload and ContainerStopSignals, which are
// off. Fields that the old object has set stay.
func dropPodFields(spec, old *corev1.PodSpec) {
	if old == nil || old.SchedulingGroup == nil {
		spec.SchedulingGroup = nil
	}
	dropProjections(spec, old)
	if old != nil && hasStopSignal(old) {
		return
	}
	eachLifecycle(spec, func(l **corev1.Lifecycle) {
		if (*l).StopSignal == nil {
			return
		}
		if (*l).StopSignal = nil; (*l).PreStop == nil && (*l).PostStart == nil {
			*l = nil
		}
	})
}

func hasStopSignal(spec *corev1.PodSpec) bool {
	found := false
	eachLifecycle(spec, func(l **corev1.Lifecycle) { found = found || (*l).StopSignal != nil })
	return found
}

// eachLifecycle visits the hooks of all containers that have hooks.
func eachLifecycle(spec *corev1.PodSpec, visit func(**corev1.Lifecycle)) {
	all := func(l **corev1.Lifecycle) {
		if *l != nil {
			visit(l)
		}
	}
	for i := range spec.InitContainers {
		all(&spec.InitContainers[i].Lifecycle)
	}
	for i := range spec.Containers {
		all(&spec.Containers[i].Lifecycle)
	}
	for i := range spec.EphemeralContainers {
		all(&spec.EphemeralContainers[i].Lifecycle)
	}
}

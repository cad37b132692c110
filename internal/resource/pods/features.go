package pods

import (
	corev1 "k8s.io/api/core/v1"
)

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

// dropSchedulingGroup clears the field of the feature GenericWorkload, unless the old object has
// it.
func dropSchedulingGroup(spec, old *corev1.PodSpec) {
	if old == nil || old.SchedulingGroup == nil {
		spec.SchedulingGroup = nil
	}
}

// dropPodFields clears fields of the feature ContainerStopSignals and of projections, which are
// off. Fields that the old object has set stay.
func dropPodFields(spec, old *corev1.PodSpec) {
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

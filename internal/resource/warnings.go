package resource

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func serviceWarnings(obj, _ runtime.Object) []string {
	s := obj.(*corev1.Service)
	at := validate.SpecPath
	var out []string
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		out = append(out, fmt.Sprintf("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if headless(s) {
		if s.Spec.LoadBalancerIP != "" {
			out = append(out, "spec.loadBalancerIP is ignored for headless services")
		}
		if len(s.Spec.ExternalIPs) > 0 {
			out = append(out, "spec.externalIPs is ignored for headless services")
		}
		if s.Spec.SessionAffinity != corev1.ServiceAffinityNone {
			out = append(out, "spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range s.Spec.ExternalIPs {
		out = append(out, validate.WarnIP(ip, at.Child("externalIPs").Index(i))...)
	}
	switch {
	case len(s.Spec.ExternalIPs) == 0 || headless(s):
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		out = append(out, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	default:
		out = append(out, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if s.Spec.LoadBalancerIP != "" {
		out = append(out, validate.WarnIP(s.Spec.LoadBalancerIP, at.Child("loadBalancerIP"))...)
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		out = append(out, validate.WarnCIDR(cidr, at.Child("loadBalancerSourceRanges").Index(i))...)
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ExternalName != "" {
		out = append(out, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		out = append(out, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return out
}

func endpointsWarnings(obj, _ runtime.Object) []string {
	var out []string
	for i, subset := range obj.(*corev1.Endpoints).Subsets {
		at := field.NewPath("subsets").Index(i)
		for j, a := range subset.Addresses {
			out = append(out, validate.WarnIP(a.IP, at.Child("addresses").Index(j).Child("ip"))...)
		}
		for j, a := range subset.NotReadyAddresses {
			out = append(out, validate.WarnIP(a.IP, at.Child("notReadyAddresses").Index(j).Child("ip"))...)
		}
	}
	return out
}

func nodeWarnings(obj, _ runtime.Object) []string {
	n := obj.(*corev1.Node)
	var out []string
	if n.Spec.DoNotUseExternalID != "" {
		out = append(out, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		out = append(out, validate.WarnCIDR(cidr, validate.SpecPath.Child("podCIDRs").Index(i))...)
	}
	return out
}

// serviceAccountWarnings warns of a deprecated annotation when it is added.
func serviceAccountWarnings(obj, old runtime.Object) []string {
	const enforce = "kubernetes.io/enforce-mountable-secrets"
	if old != nil {
		if _, before := old.(*corev1.ServiceAccount).Annotations[enforce]; before {
			return nil
		}
	}
	if _, ok := obj.(*corev1.ServiceAccount).Annotations[enforce]; !ok {
		return nil
	}
	return []string{validate.AnnotationPath(enforce) + ": deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}

func warnStorageClassAnnotation(obj metav1.Object) []string {
	if _, ok := obj.GetAnnotations()[corev1.BetaStorageClassAnnotation]; !ok {
		return nil
	}
	return []string{validate.AnnotationPath(corev1.BetaStorageClassAnnotation) + `: deprecated since v1.8; use "storageClassName" attribute instead`}
}

func claimWarnings(obj, _ runtime.Object) []string {
	c := obj.(*corev1.PersistentVolumeClaim)
	return append(warnStorageClassAnnotation(c), warnClaimSpec(&c.Spec, validate.SpecPath)...)
}

func warnClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) []string {
	at = at.Child("resources")
	return append(validate.WarnFractions(corev1.ResourceStorage, s.Resources.Requests, at.Child("requests")), validate.WarnFractions(corev1.ResourceStorage, s.Resources.Limits, at.Child("limits"))...)
}

func persistentVolumeWarnings(obj, _ runtime.Object) []string {
	v := obj.(*corev1.PersistentVolume)
	out := warnStorageClassAnnotation(v)
	if _, ok := v.Annotations[mountOptionsAnnotation]; ok {
		out = append(out, validate.AnnotationPath(mountOptionsAnnotation)+`: deprecated since v1.31; use "mountOptions" attribute instead`)
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		out = append(out, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i, term := range a.Required.NodeSelectorTerms {
			for j, r := range term.MatchExpressions {
				out = append(out, validate.WarnOldLabel(r.Key, validate.SpecPath.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i).Child("matchExpressions").Index(j).Child("key"))...)
			}
		}
	}
	s := &v.Spec.PersistentVolumeSource
	for _, source := range []struct {
		name string
		set  bool
	}{
		{"cephfs", s.CephFS != nil}, {"photonPersistentDisk", s.PhotonPersistentDisk != nil}, {"rbd", s.RBD != nil},
		{"scaleIO", s.ScaleIO != nil}, {"storageos", s.StorageOS != nil}, {"glusterfs", s.Glusterfs != nil},
	} {
		if source.set {
			out = append(out, validate.SpecPath.String()+"."+oldVolumes[source.name])
		}
	}
	return out
}

func statefulSetWarnings(obj, old runtime.Object) []string {
	s := obj.(*appsv1.StatefulSet)
	var out []string
	for i := range s.Spec.VolumeClaimTemplates {
		at := validate.SpecPath.Child("volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec")
		}
		out = append(out, warnClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, at)...)
	}
	if limit := s.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}

// indexedWarnings warns of jobs and job templates with very many indexes. An update warns only if
// it changes something about the job.
func indexedWarnings(obj, old runtime.Object) []string {
	if old != nil && !warnedAgain(obj, old) {
		return nil
	}
	var spec *batchv1.JobSpec
	at := validate.SpecPath
	switch o := obj.(type) {
	case *batchv1.Job:
		spec = &o.Spec
	case *batchv1.CronJob:
		spec, at = &o.Spec.JobTemplate.Spec, validate.SpecPath.Child("jobTemplate", "spec")
	default:
		return nil
	}
	if !indexed(spec) || validate.Deref(spec.Completions) <= highCompletions || validate.Deref(spec.Parallelism) <= maxParallelismAboveHigh {
		return nil
	}
	return []string{at.String() + ": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"}
}

package node

import (
	corev1 "k8s.io/api/core/v1"
)

// Kinds that pods refer to.
const (
	kindSecret        = "secret"
	kindConfigMap     = "configmap"
	kindClaim         = "claim"
	kindAccount       = "account"
	kindResourceClaim = "resourceclaim"
)

func reference(node, kind, namespace, name string) string {
	return node + "|" + kind + "|" + namespace + "|" + name
}

// podReferences returns the index values of a pod: what it gives its node access to. A mirror pod
// gives no access, because the node itself creates it.
func podReferences(pod *corev1.Pod) []string {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey] // with any value
	if pod.Spec.NodeName == "" || mirror {
		return nil
	}
	var out []string
	seen := map[string]bool{}
	add := func(kind, name string) {
		if name == "" {
			return
		}
		if r := reference(pod.Spec.NodeName, kind, pod.Namespace, name); !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	add(kindAccount, pod.Spec.ServiceAccountName)
	specReferences(pod, add)
	for _, claim := range pod.Spec.ResourceClaims {
		if claim.ResourceClaimName != nil {
			add(kindResourceClaim, *claim.ResourceClaimName)
		}
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil {
			add(kindResourceClaim, *status.ResourceClaimName)
		}
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		add(kindResourceClaim, status.ResourceClaimName)
	}
	return out
}

// SecretsOf returns the names of all Secrets that a pod uses.
func SecretsOf(pod *corev1.Pod) (names []string) {
	specReferences(pod, func(kind, name string) {
		if kind == kindSecret {
			names = append(names, name)
		}
	})
	return names
}

// specReferences calls add for everything that containers and volumes refer to.
func specReferences(pod *corev1.Pod, add func(kind, name string)) {
	for _, s := range pod.Spec.ImagePullSecrets {
		add(kindSecret, s.Name)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		containerReferences(c.Env, c.EnvFrom, add)
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		containerReferences(c.Env, c.EnvFrom, add)
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		containerReferences(c.Env, c.EnvFrom, add)
	}
	for i := range pod.Spec.Volumes {
		podVolumeReferences(pod, &pod.Spec.Volumes[i], add)
	}
}

func containerReferences(env []corev1.EnvVar, from []corev1.EnvFromSource, add func(kind, name string)) {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if s := e.ValueFrom.SecretKeyRef; s != nil {
			add(kindSecret, s.Name)
		}
		if c := e.ValueFrom.ConfigMapKeyRef; c != nil {
			add(kindConfigMap, c.Name)
		}
	}
	for _, f := range from {
		if f.SecretRef != nil {
			add(kindSecret, f.SecretRef.Name)
		}
		if f.ConfigMapRef != nil {
			add(kindConfigMap, f.ConfigMapRef.Name)
		}
	}
}

func podVolumeReferences(pod *corev1.Pod, v *corev1.Volume, add func(kind, name string)) {
	local := func(s *corev1.LocalObjectReference) {
		if s != nil {
			add(kindSecret, s.Name)
		}
	}
	switch {
	case v.Secret != nil:
		add(kindSecret, v.Secret.SecretName)
	case v.ConfigMap != nil:
		add(kindConfigMap, v.ConfigMap.Name)
	case v.PersistentVolumeClaim != nil:
		add(kindClaim, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		add(kindClaim, pod.Name+"-"+v.Name)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				add(kindSecret, source.Secret.Name)
			}
			if source.ConfigMap != nil {
				add(kindConfigMap, source.ConfigMap.Name)
			}
		}
	case v.CSI != nil:
		local(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		add(kindSecret, v.AzureFile.SecretName)
	case v.CephFS != nil:
		local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		local(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		local(v.ISCSI.SecretRef)
	case v.RBD != nil:
		local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		local(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		local(v.StorageOS.SecretRef)
	}
}

// volumeSecrets returns the Secrets ("namespace/name") that a node needs to mount a volume.
func volumeSecrets(pv *corev1.PersistentVolume) []string {
	var out []string
	claimNamespace := ""
	if pv.Spec.ClaimRef != nil {
		claimNamespace = pv.Spec.ClaimRef.Namespace
	}
	add := func(s *corev1.SecretReference) {
		if s == nil || s.Name == "" {
			return
		}
		namespace := s.Namespace
		if namespace == "" {
			namespace = claimNamespace
		}
		out = append(out, namespace+"/"+s.Name)
	}
	source := &pv.Spec.PersistentVolumeSource
	switch {
	case source.CSI != nil:
		add(source.CSI.NodePublishSecretRef)
		add(source.CSI.NodeStageSecretRef)
		add(source.CSI.NodeExpandSecretRef)
	case source.AzureFile != nil:
		s := corev1.SecretReference{Name: source.AzureFile.SecretName}
		if source.AzureFile.SecretNamespace != nil {
			s.Namespace = *source.AzureFile.SecretNamespace
		}
		add(&s)
	case source.CephFS != nil:
		add(source.CephFS.SecretRef)
	case source.Cinder != nil:
		add(source.Cinder.SecretRef)
	case source.FlexVolume != nil:
		add(source.FlexVolume.SecretRef)
	case source.ISCSI != nil:
		add(source.ISCSI.SecretRef)
	case source.RBD != nil:
		add(source.RBD.SecretRef)
	case source.ScaleIO != nil:
		add(source.ScaleIO.SecretRef)
	case source.StorageOS != nil && source.StorageOS.SecretRef != nil:
		add(&corev1.SecretReference{Namespace: source.StorageOS.SecretRef.Namespace, Name: source.StorageOS.SecretRef.Name})
	}
	return out
}

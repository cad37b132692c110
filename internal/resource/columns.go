package resource

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// containerNames and containerImages fill the wide columns of every kind with a pod template.
func containerNames(spec *corev1.PodSpec) string {
	var names []string
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	return strings.Join(names, ",")
}

func containerImages(spec *corev1.PodSpec) string {
	var images []string
	for i := range spec.Containers {
		images = append(images, spec.Containers[i].Image)
	}
	return strings.Join(images, ",")
}

var accessModeNames = map[corev1.PersistentVolumeAccessMode]string{
	corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX", corev1.ReadWriteOncePod: "RWOP",
}

// accessModes returns the abbreviations in a fixed order, each mode once.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var names []string
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod} {
		for _, m := range modes {
			if m == mode {
				names = append(names, accessModeNames[m])
				break
			}
		}
	}
	return strings.Join(names, ",")
}

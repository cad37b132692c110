package resource

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Before v1.30 the AppArmor profile of a container was an annotation of its pod. When a pod is created, a valid annotation becomes the field, which is what
// nodes go by (KEP-24, version skew). Templates keep the annotation: their pods get the field.

// takeAppArmor gives containers the profiles that the pod's annotations say.
func takeAppArmor(p *corev1.Pod) {
	eachAnnotatedAppArmor(p, func(c *corev1.Container, profile *corev1.AppArmorProfile) {
		if profile == nil {
			return
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	})
}

// warnAppArmor tells of annotations in place of fields; once takeAppArmor has set the fields there is nothing left to tell.
func warnAppArmor(p *corev1.Pod) []string {
	var out []string
	eachAnnotatedAppArmor(p, func(c *corev1.Container, _ *corev1.AppArmorProfile) {
		out = append(out, oldAppArmor(field.NewPath("metadata", "annotations"), c))
	})
	return out
}

func oldAppArmor(annotations *field.Path, c *corev1.Container) string {
	return fmt.Sprintf(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`, annotations.Key(appArmorKey(c)))
}

func appArmorKey(c *corev1.Container) string {
	return corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
}

// eachAnnotatedAppArmor visits the containers of a new pod whose annotations say something of their own.
func eachAnnotatedAppArmor(p *corev1.Pod, visit func(*corev1.Container, *corev1.AppArmorProfile)) {
	if len(p.Annotations) == 0 || p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			if profile, own := annotatedAppArmor(p.Annotations, &p.Spec, &containers[i]); own {
				visit(&containers[i], profile)
			}
		}
	}
}

// annotatedAppArmor is the profile that a container has by an annotation alone; nil when the annotation says none that is valid. own is false when there is
// no annotation, when the container has the field, and when the profile is the one of the whole pod.
func annotatedAppArmor(annotations map[string]string, spec *corev1.PodSpec, c *corev1.Container) (profile *corev1.AppArmorProfile, own bool) {
	text, ok := annotations[appArmorKey(c)]
	if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return nil, false
	}
	profile = appArmorOf(text)
	if profile != nil && spec.SecurityContext != nil && equal(profile, spec.SecurityContext.AppArmorProfile) {
		return nil, false
	}
	return profile, true
}

// appArmorOf reads the value of an annotation; nil when it is no valid profile.
func appArmorOf(text string) *corev1.AppArmorProfile {
	switch text {
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}
	name, ok := strings.CutPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	profile := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	if !ok || len(validateAppArmor(profile, field.NewPath("appArmorProfile"))) > 0 {
		return nil
	}
	return profile
}

package resource

import (
	"fmt"
	"maps"
	"slices"
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

// validateAppArmorAnnotations: annotations name containers that are there, and profiles that can be.
func validateAppArmorAnnotations(annotations map[string]string, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ok := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		if !hasContainer(spec, name) {
			errs = append(errs, field.Invalid(at.Key(key), name, "container not found"))
		}
		switch value := annotations[key]; {
		case value == "", value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
			strings.HasPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		default:
			errs = append(errs, field.Invalid(at.Key(key), value, fmt.Sprintf("invalid AppArmor profile name: %q", value)))
		}
	}
	return errs
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(spec.InitContainers, named) || slices.ContainsFunc(spec.Containers, named) ||
		slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// validateAppArmorAgrees: a container that has a profile, of its own or of its pod, and an annotation is told the same by both.
func validateAppArmorAgrees(annotations map[string]string, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	if len(annotations) == 0 || spec.OS != nil && spec.OS.Name == corev1.Windows { // which may not have a profile at all
		return nil
	}
	var errs field.ErrorList
	check := func(containers []corev1.Container, at *field.Path) {
		for i := range containers {
			c := &containers[i]
			text, annotated := annotations[appArmorKey(c)]
			var profile *corev1.AppArmorProfile
			if s := spec.SecurityContext; s != nil {
				profile = s.AppArmorProfile
			}
			if s := c.SecurityContext; s != nil && s.AppArmorProfile != nil {
				profile = s.AppArmorProfile
			}
			if annotated && profile != nil {
				errs = append(errs, sameAppArmor(text, profile, at.Index(i).Child("securityContext", "appArmorProfile"))...)
			}
		}
	}
	check(spec.InitContainers, at.Child("initContainers"))
	check(spec.Containers, at.Child("containers"))
	return errs
}

func sameAppArmor(annotation string, profile *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	differs := field.ErrorList{field.Forbidden(at.Child("type"), "apparmor type in annotation and field must match")}
	switch profile.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		if annotation != corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return differs
		}
	case corev1.AppArmorProfileTypeRuntimeDefault:
		if annotation != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault {
			return differs
		}
	case corev1.AppArmorProfileTypeLocalhost:
		name, ok := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
		switch {
		case !ok:
			return differs
		case profile.LocalhostProfile == nil || *profile.LocalhostProfile != name:
			return field.ErrorList{field.Forbidden(at.Child("localhostProfile"), "apparmor profile in annotation and field must match")}
		}
	}
	return nil
}

// validateAppArmorUpdate: the annotations of a pod stay what they were when it was made.
func validateAppArmorUpdate(p, old *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("metadata", "annotations")
	both := maps.Clone(old.Annotations)
	if both == nil {
		both = map[string]string{}
	}
	maps.Copy(both, p.Annotations)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		if !strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			continue
		}
		was, before := old.Annotations[key]
		is, after := p.Annotations[key]
		switch {
		case !before:
			errs = append(errs, field.Forbidden(at.Key(key), "may not add AppArmor annotations"))
		case !after || is != was:
			errs = append(errs, field.Forbidden(at.Key(key), "may not remove or update AppArmor annotations"))
		}
	}
	return append(errs, validateAppArmorAnnotations(p.Annotations, &p.Spec, at)...)
}

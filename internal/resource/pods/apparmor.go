package pods

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// Before v1.30, an annotation of the pod set a container's AppArmor profile. Creating a pod copies
// a valid annotation into the field, which nodes read (KEP-24, version skew). Templates keep the
// annotation; their pods get the field.

// takeAppArmor sets the profiles of containers from the pod's annotations.
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

// warnAppArmor warns of annotations that are used instead of fields. After takeAppArmor has set the
// fields, it finds none.
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

// eachAnnotatedAppArmor visits the containers of a new pod whose annotation sets a profile of their
// own.
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

// annotatedAppArmor returns the profile that only an annotation sets. profile is nil if the
// annotation is invalid. own is false when there is no annotation, the container has the field, or
// the profile equals the pod's.
func annotatedAppArmor(annotations map[string]string, spec *corev1.PodSpec, c *corev1.Container) (profile *corev1.AppArmorProfile, own bool) {
	text, ok := annotations[appArmorKey(c)]
	if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return nil, false
	}
	profile = appArmorOf(text)
	if profile != nil && spec.SecurityContext != nil && validate.Equal(profile, spec.SecurityContext.AppArmorProfile) {
		return nil, false
	}
	return profile, true
}

// appArmorOf parses an annotation's value; nil means it is not a valid profile.
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

// validateAppArmorAnnotations checks that annotations name existing containers and valid profiles.
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

// validateAppArmorAgrees checks that a container's annotation and profile field (its own or the
// pod's) agree.
func validateAppArmorAgrees(annotations map[string]string, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	// Windows pods may not have a profile at all.
	if len(annotations) == 0 || spec.OS != nil && spec.OS.Name == corev1.Windows {
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

// validateAppArmorUpdate refuses changes of the annotations after the pod's creation.
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

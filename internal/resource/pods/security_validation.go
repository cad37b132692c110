package pods

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func (p podParts) validateSecurityContext(s *corev1.SecurityContext, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.RunAsUser != nil {
		errs = append(errs, validate.Invalids(at.Child("runAsUser"), *s.RunAsUser, validation.IsValidUserID(*s.RunAsUser))...)
	}
	if s.RunAsGroup != nil {
		errs = append(errs, validate.Invalids(at.Child("runAsGroup"), *s.RunAsGroup, validation.IsValidGroupID(*s.RunAsGroup))...)
	}
	if s.ProcMount != nil {
		errs = append(errs, validate.OneOf(*s.ProcMount, at.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
		if *s.ProcMount == corev1.UnmaskedProcMount && (p.spec.HostUsers == nil || *p.spec.HostUsers) {
			errs = append(errs, field.Invalid(at.Child("procMount"), s.ProcMount, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	errs = append(errs, validateSeccomp(s.SeccompProfile, at.Child("seccompProfile"))...)
	if escalation := s.AllowPrivilegeEscalation; escalation != nil && !*escalation {
		if s.Privileged != nil && *s.Privileged {
			errs = append(errs, field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
			errs = append(errs, field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
		}
	}
	errs = append(errs, validateWindowsOptions(s.WindowsOptions, at.Child("windowsOptions"))...)
	return append(errs, validateAppArmor(s.AppArmorProfile, at.Child("appArmorProfile"))...)
}

func validateSeccomp(s *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	switch s.Type {
	case corev1.SeccompProfileTypeLocalhost:
		if s.LocalhostProfile == nil {
			return field.ErrorList{field.Required(at.Child("localhostProfile"), "must be set when seccomp type is Localhost")}
		}
		return validateDescendingPath(*s.LocalhostProfile, at.Child("localhostProfile"))
	case corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined:
		if s.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(at.Child("localhostProfile"), s, "can only be set when seccomp type is Localhost")}
		}
		return nil
	case "":
		return field.ErrorList{field.Required(at.Child("type"), "type is required when seccompProfile is set")}
	}
	errs := validate.NotSupportedUnless(s.Type, at.Child("type"), corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	if s.LocalhostProfile != nil {
		errs = append(errs, field.Invalid(at.Child("localhostProfile"), s, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

func validateAppArmor(a *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	profile := at.Child("localhostProfile")
	switch a.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		switch {
		case a.LocalhostProfile == nil:
			return field.ErrorList{field.Required(profile, "must be set when AppArmor type is Localhost")}
		case strings.TrimSpace(*a.LocalhostProfile) != *a.LocalhostProfile:
			return field.ErrorList{field.Invalid(profile, *a.LocalhostProfile, "must not be padded with whitespace")}
		case *a.LocalhostProfile == "":
			return field.ErrorList{field.Required(profile, "must be set when AppArmor type is Localhost")}
		case len(*a.LocalhostProfile) > 4095:
			return field.ErrorList{field.TooLong(profile, *a.LocalhostProfile, 4095)}
		}
		return nil
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if a.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(profile, a.LocalhostProfile, "can only be set when AppArmor type is Localhost")}
		}
		return nil
	case "":
		return field.ErrorList{field.Required(at.Child("type"), "type is required when appArmorProfile is set")}
	}
	return validate.NotSupportedUnless(a.Type, at.Child("type"), corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
}

const (
	maxCredentialSpec = 64 * 1024
	maxWindowsDomain  = 256
	maxWindowsUser    = 104
)

func validateWindowsOptions(w *corev1.WindowsSecurityContextOptions, at *field.Path) field.ErrorList {
	if w == nil {
		return nil
	}
	var errs field.ErrorList
	if w.GMSACredentialSpecName != nil {
		errs = append(errs, validate.Invalids(at.Child("gmsaCredentialSpecName"), w.GMSACredentialSpecName, validation.IsDNS1123Subdomain(*w.GMSACredentialSpecName))...)
	}
	if spec := w.GMSACredentialSpec; spec != nil {
		if *spec == "" {
			errs = append(errs, field.Invalid(at.Child("gmsaCredentialSpec"), w.GMSACredentialSpec, "gmsaCredentialSpec cannot be an empty string"))
		} else if len(*spec) > maxCredentialSpec {
			errs = append(errs, field.Invalid(at.Child("gmsaCredentialSpec"), w.GMSACredentialSpec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpec/1024)))
		}
	}
	if w.RunAsUserName != nil {
		errs = append(errs, validateWindowsUser(*w.RunAsUserName, at.Child("runAsUserName"))...)
	}
	return errs
}

var windowsControl = regexp.MustCompile(`[[:cntrl:]]+`)

func validateWindowsUser(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Invalid(at, name, "runAsUserName cannot be an empty string")}
	case windowsControl.MatchString(name):
		return field.ErrorList{field.Invalid(at, name, "runAsUserName cannot contain control characters")}
	}
	user := name
	var errs field.ErrorList
	if parts := strings.Split(name, `\`); len(parts) > 2 {
		return field.ErrorList{field.Invalid(at, name, "runAsUserName cannot contain more than one backslash")}
	} else if len(parts) == 2 {
		user = parts[1]
		if parts[0] == "" || len(parts[0]) >= maxWindowsDomain {
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("runAsUserName's Domain length must be under %d characters", maxWindowsDomain)))
		}
	}
	switch {
	case user == "":
		errs = append(errs, field.Invalid(at, name, "runAsUserName's User cannot be empty"))
	case utf8.RuneCountInString(user) > maxWindowsUser:
		errs = append(errs, field.Invalid(at, name, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", maxWindowsUser)))
	case strings.Trim(user, ". ") == "":
		errs = append(errs, field.Invalid(at, name, "runAsUserName's User cannot contain only periods or spaces"))
	case strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`):
		errs = append(errs, field.Invalid(at, name, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`))
	}
	return errs
}

// validatePodSecurity checks the pod's security context and the fields that depend on it.
func (p podParts) validatePodSecurity(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	s := p.spec.SecurityContext
	if share := p.spec.ShareProcessNamespace; p.spec.HostPID && share != nil && *share {
		errs = append(errs, field.Invalid(at.Child("shareProcessNamespace"), *share, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if users := p.spec.HostUsers; users != nil && !*users {
		const why = "when `hostUsers` is false"
		for name, set := range map[string]bool{"hostNetwork": p.spec.HostNetwork, "HostPID": p.spec.HostPID, "HostIPC": p.spec.HostIPC} {
			if set {
				errs = append(errs, field.Forbidden(at.Child(name), why))
			}
		}
	}
	if s == nil {
		return errs
	}
	at = at.Child("securityContext")
	if s.FSGroup != nil {
		errs = append(errs, validate.Invalids(at.Child("fsGroup"), *s.FSGroup, validation.IsValidGroupID(*s.FSGroup))...)
	}
	if s.RunAsUser != nil {
		errs = append(errs, validate.Invalids(at.Child("runAsUser"), *s.RunAsUser, validation.IsValidUserID(*s.RunAsUser))...)
	}
	if s.RunAsGroup != nil {
		errs = append(errs, validate.Invalids(at.Child("runAsGroup"), *s.RunAsGroup, validation.IsValidGroupID(*s.RunAsGroup))...)
	}
	for i, group := range s.SupplementalGroups {
		errs = append(errs, validate.Invalids(at.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group))...)
	}
	if s.SupplementalGroupsPolicy != nil {
		errs = append(errs, validate.NotSupportedUnless(*s.SupplementalGroupsPolicy, at.Child("supplementalGroupsPolicy"), corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	}
	errs = append(errs, validateSysctls(s.Sysctls, p.spec, at.Child("sysctls"))...)
	if s.FSGroupChangePolicy != nil {
		errs = append(errs, validate.NotSupportedUnless(*s.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	}
	if s.SELinuxChangePolicy != nil {
		// The feature SELinuxMount is off.
		errs = append(errs, validate.NotSupportedUnless(*s.SELinuxChangePolicy, at.Child("seLinuxChangePolicy"), corev1.SELinuxChangePolicyRecursive)...)
	}
	errs = append(errs, validateSeccomp(s.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, validateWindowsOptions(s.WindowsOptions, at.Child("windowsOptions"))...)
	return append(errs, validateAppArmor(s.AppArmorProfile, at.Child("appArmorProfile"))...)
}

const (
	sysctlSegment   = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	sysctlPattern   = "(" + sysctlSegment + "[\\./])*" + sysctlSegment
	maxSysctlLength = 253
)

var sysctlName = regexp.MustCompile("^" + sysctlPattern + "$")

func validateSysctls(sysctls []corev1.Sysctl, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[string]{}
	for i, s := range sysctls {
		at := at.Index(i).Child("name")
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(s.Name) > maxSysctlLength || !sysctlName.MatchString(s.Name):
			errs = append(errs, field.Invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlLength, sysctlName)))
		case seen.Has(s.Name):
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		seen.Insert(s.Name)
		dotted := strings.ReplaceAll(s.Name, "/", ".")
		if spec.HostNetwork && strings.HasPrefix(dotted, "net.") {
			errs = append(errs, field.Invalid(at, s.Name, "may not be specified when 'hostNetwork' is true"))
		}
		ipc := strings.HasPrefix(dotted, "kernel.shm") || strings.HasPrefix(dotted, "kernel.msg") || dotted == "kernel.sem" || strings.HasPrefix(dotted, "fs.mqueue.")
		if spec.HostIPC && ipc {
			errs = append(errs, field.Invalid(at, s.Name, "may not be specified when 'hostIPC' is true"))
		}
	}
	return errs
}

// validateOS refuses fields that the pod's operating system does not support.
func (p podParts) validateOS(at *field.Path) field.ErrorList {
	os := p.spec.OS
	if os == nil {
		return nil
	}
	if os.Name == "" {
		return field.ErrorList{field.Required(at.Child("os", "name"), "cannot be empty")}
	}
	switch os.Name {
	case corev1.Linux:
		return p.validateLinux(at)
	case corev1.Windows:
		return p.validateWindows(at)
	}
	return validate.NotSupportedUnless(os.Name, at.Child("os"), corev1.Linux, corev1.Windows)
}

func (p podParts) validateLinux(at *field.Path) field.ErrorList {
	const why = "windows options cannot be set for a linux pod"
	var errs field.ErrorList
	if s := p.spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(at.Child("securityContext", "windowsOptions"), why))
	}
	p.eachSecurityContext(at, func(s *corev1.SecurityContext, at *field.Path) {
		if s.WindowsOptions != nil {
			errs = append(errs, field.Forbidden(at.Child("windowsOptions"), why))
		}
	})
	return errs
}

func (p podParts) validateWindows(at *field.Path) field.ErrorList {
	const why = "cannot be set for a windows pod"
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(at, why))
		}
	}
	spec := p.spec
	forbid(spec.HostPID, at.Child("hostPID"))
	forbid(spec.HostIPC, at.Child("hostIPC"))
	forbid(spec.ShareProcessNamespace != nil, at.Child("shareProcessNamespace"))
	forbid(spec.HostUsers != nil, at.Child("hostUsers"))
	forbid(spec.Resources != nil, at.Child("resources"))
	if s := spec.SecurityContext; s != nil {
		at := at.Child("securityContext")
		forbid(s.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(s.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(s.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(s.FSGroup != nil, at.Child("fsGroup"))
		forbid(s.FSGroupChangePolicy != nil, at.Child("fsGroupChangePolicy"))
		forbid(len(s.Sysctls) > 0, at.Child("sysctls"))
		forbid(s.RunAsUser != nil, at.Child("runAsUser"))
		forbid(s.RunAsGroup != nil, at.Child("runAsGroup"))
		forbid(s.SupplementalGroups != nil, at.Child("supplementalGroups"))
		forbid(s.SupplementalGroupsPolicy != nil, at.Child("supplementalGroupsPolicy"))
		forbid(s.SELinuxChangePolicy != nil, at.Child("seLinuxChangePolicy"))
	}
	p.eachSecurityContext(at, func(s *corev1.SecurityContext, at *field.Path) {
		forbid(s.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(s.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(s.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(s.Capabilities != nil, at.Child("capabilities"))
		forbid(s.ReadOnlyRootFilesystem != nil, at.Child("readOnlyRootFilesystem"))
		forbid(s.Privileged != nil, at.Child("privileged"))
		forbid(s.AllowPrivilegeEscalation != nil, at.Child("allowPrivilegeEscalation"))
		forbid(s.ProcMount != nil, at.Child("procMount"))
		forbid(s.RunAsUser != nil, at.Child("runAsUser"))
		forbid(s.RunAsGroup != nil, at.Child("runAsGroup"))
	})
	return errs
}

func (p podParts) eachSecurityContext(at *field.Path, fn func(s *corev1.SecurityContext, at *field.Path)) {
	for i := range p.spec.Containers {
		if s := p.spec.Containers[i].SecurityContext; s != nil {
			fn(s, at.Child("containers").Index(i).Child("securityContext"))
		}
	}
	for i := range p.spec.InitContainers {
		if s := p.spec.InitContainers[i].SecurityContext; s != nil {
			fn(s, at.Child("initContainers").Index(i).Child("securityContext"))
		}
	}
	for i := range p.spec.EphemeralContainers {
		if s := p.spec.EphemeralContainers[i].SecurityContext; s != nil {
			fn(s, at.Child("ephemeralContainers").Index(i).Child("securityContext"))
		}
	}
}

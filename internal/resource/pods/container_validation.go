package pods

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// podParts is the part of a pod that the checks of its containers need.
type podParts struct {
	spec    *corev1.PodSpec
	volumes map[string]*corev1.Volume
}

func partsOf(spec *corev1.PodSpec) podParts {
	p := podParts{spec: spec, volumes: map[string]*corev1.Volume{}}
	for i := range spec.Volumes {
		p.volumes[spec.Volumes[i].Name] = &spec.Volumes[i]
	}
	return p
}

func (p podParts) validateContainers(at *field.Path) field.ErrorList {
	if len(p.spec.Containers) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i := range p.spec.Containers {
		c, at := &p.spec.Containers[i], at.Index(i)
		errs = append(errs, p.validateContainer(c, names, at)...)
		errs = append(errs, validateLifecycle(c.Lifecycle, p.spec, at.Child("lifecycle"))...)
		errs = append(errs, validateProbes(c, at)...)
		errs = append(errs, p.validateRestart(c, at)...)
	}
	return append(errs, validateHostPorts(p.spec.Containers, at)...)
}

func (p podParts) validateInitContainers(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i := range p.spec.Containers {
		names.Insert(p.spec.Containers[i].Name)
	}
	for i := range p.spec.InitContainers {
		c, at := &p.spec.InitContainers[i], at.Index(i)
		errs = append(errs, p.validateContainer(c, names, at)...)
		if isSidecar(c) {
			errs = append(errs, validateLifecycle(c.Lifecycle, p.spec, at.Child("lifecycle"))...)
			errs = append(errs, validateProbes(c, at)...)
		} else {
			for j, policy := range c.ResizePolicy {
				if policy.RestartPolicy == corev1.RestartContainer {
					errs = append(errs, field.Invalid(at.Child("resizePolicy").Index(j).Child("restartPolicy"), policy.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers"))
				}
			}
			const only = "may not be set for init containers without restartPolicy=Always"
			for name, set := range map[string]bool{"lifecycle": c.Lifecycle != nil, "livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil, "startupProbe": c.StartupProbe != nil} {
				if set {
					errs = append(errs, field.Forbidden(at.Child(name), only))
				}
			}
		}
		errs = append(errs, p.validateRestart(c, at)...)
		// Init containers run one at a time: only ports of the same container conflict.
		errs = append(errs, validateHostPorts(p.spec.InitContainers[i:i+1], at)...)
	}
	return errs
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// validateContainer checks the fields that all kinds of containers share. names are the names taken
// so far.
func (p podParts) validateContainer(c *corev1.Container, names sets.Set[string], at *field.Path) field.ErrorList {
	errs := validateContainerName(c.Name, names, at.Child("name"))
	errs = append(errs, validateImage(c.Image, at.Child("image"))...)
	errs = append(errs, validate.OneOf(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"), corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validateContainerPorts(c.Ports, p.spec.HostNetwork, at.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, at.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, p.validateFileEnv(c.Env, at.Child("env"))...)
	errs = append(errs, p.validateMounts(c, at.Child("volumeMounts"))...)
	errs = append(errs, p.validateDevices(c, at.Child("volumeDevices"))...)
	errs = append(errs, validatePullPolicyRequired(c.ImagePullPolicy, at.Child("imagePullPolicy"))...)
	errs = append(errs, p.validateContainerResources(&c.Resources, at.Child("resources"))...)
	errs = append(errs, validateResizePolicy(c.ResizePolicy, p.spec.RestartPolicy, at.Child("resizePolicy"))...)
	return append(errs, p.validateSecurityContext(c.SecurityContext, at.Child("securityContext"))...)
}

func validateContainerName(name string, names sets.Set[string], at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validate.Label(name, at)...)
	}
	if names.Has(name) {
		errs = append(errs, field.Duplicate(at, name))
	}
	names.Insert(name)
	return errs
}

func validateImage(image string, at *field.Path) field.ErrorList {
	if image == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

// validateImagePadding refuses whitespace around an image reference. Templates are exempt, because
// older versions accepted it there.
func validateImagePadding(image string, at *field.Path) field.ErrorList {
	if strings.TrimSpace(image) != image {
		return field.ErrorList{field.Invalid(at, image, "must not have leading or trailing whitespace")}
	}
	return nil
}

func validatePullPolicyRequired(policy corev1.PullPolicy, at *field.Path) field.ErrorList {
	return validate.OneOf(policy, at, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

// validatePullPolicy checks a policy, which may be absent.
func validatePullPolicy(policy corev1.PullPolicy, at *field.Path) field.ErrorList {
	if policy == "" {
		return nil
	}
	return validatePullPolicyRequired(policy, at)
}

func validateContainerPorts(ports []corev1.ContainerPort, hostNetwork bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i := range ports {
		port, at := &ports[i], at.Index(i)
		if port.Name != "" {
			if messages := validation.IsValidPortName(port.Name); len(messages) > 0 {
				errs = append(errs, validate.Invalids(at.Child("name"), port.Name, messages)...)
			} else if names.Has(port.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), port.Name))
			} else {
				names.Insert(port.Name)
			}
		}
		if port.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, validate.Port(port.ContainerPort, at.Child("containerPort"))...)
		}
		if port.HostPort != 0 {
			errs = append(errs, validate.Port(port.HostPort, at.Child("hostPort"))...)
		}
		if hostNetwork && port.HostPort != port.ContainerPort {
			errs = append(errs, field.Invalid(at.Child("containerPort"), port.ContainerPort, "must match `hostPort` when `hostNetwork` is true"))
		}
		errs = append(errs, validate.OneOf(port.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	}
	return errs
}

// validateHostPorts refuses two containers that use the same host port.
func validateHostPorts(containers []corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.Set[string]{}
	for i := range containers {
		for j, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			port := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if taken.Has(port) {
				errs = append(errs, field.Duplicate(at.Index(i).Child("ports").Index(j).Child("hostPort"), port))
			}
			taken.Insert(port)
		}
	}
	return errs
}

// validateFileEnv checks that files with variables are in an emptyDir of the pod.
func (p podParts) validateFileEnv(vars []corev1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		if vars[i].ValueFrom == nil || vars[i].ValueFrom.FileKeyRef == nil {
			continue
		}
		name, at := vars[i].ValueFrom.FileKeyRef.VolumeName, at.Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
		switch v := p.volumes[name]; {
		case v == nil:
			errs = append(errs, field.NotFound(at, name))
		case v.EmptyDir == nil:
			errs = append(errs, field.Invalid(at, name, "referenced volume must be of type emptyDir"))
		}
	}
	return errs
}

func (p podParts) validateMounts(c *corev1.Container, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := sets.Set[string]{}
	devices := map[string]string{}
	for _, d := range c.VolumeDevices {
		devices[d.Name] = d.DevicePath
	}
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], list.Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if p.volumes[m.Name] == nil {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		}
		if paths.Has(m.MountPath) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths.Insert(m.MountPath)
		if _, both := devices[m.Name]; both {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		for _, device := range devices {
			if device == m.MountPath {
				errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices"))
			}
		}
		if m.SubPath != "" {
			errs = append(errs, validateDescendingPath(m.SubPath, list.Child("subPath"))...)
		}
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
			}
			errs = append(errs, validateDescendingPath(m.SubPathExpr, list.Child("subPathExpr"))...)
		}
		errs = append(errs, validatePropagation(m.MountPropagation, c.SecurityContext, list.Child("mountPropagation"))...)
		errs = append(errs, validateRecursiveReadOnly(m, list.Child("recursiveReadOnly"))...)
	}
	return errs
}

func validatePropagation(mode *corev1.MountPropagationMode, s *corev1.SecurityContext, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	errs := validate.NotSupportedUnless(*mode, at, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	if len(errs) > 0 {
		return errs
	}
	if *mode == corev1.MountPropagationBidirectional && (s == nil || s.Privileged == nil || !*s.Privileged) {
		return field.ErrorList{field.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers")}
	}
	return nil
}

func validateRecursiveReadOnly(m *corev1.VolumeMount, at *field.Path) field.ErrorList {
	if m.RecursiveReadOnly == nil {
		return nil
	}
	var errs field.ErrorList
	switch *m.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyDisabled:
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
		if !m.ReadOnly {
			errs = append(errs, field.Forbidden(at, "may only be specified when readOnly is true"))
		}
		if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			errs = append(errs, field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
		}
	default:
		errs = append(errs, validate.NotSupportedUnless(*m.RecursiveReadOnly, at, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)...)
	}
	return errs
}

func (p podParts) validateDevices(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths, names := sets.Set[string]{}, sets.Set[string]{}
	mounted, mountedNames := sets.Set[string]{}, sets.Set[string]{}
	for _, m := range c.VolumeMounts {
		mounted.Insert(m.MountPath)
		mountedNames.Insert(m.Name)
	}
	for i := range c.VolumeDevices {
		d, at := &c.VolumeDevices[i], at.Index(i)
		if d.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if mountedNames.Has(d.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must not already exist in volumeMounts"))
		}
		if names.Has(d.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be unique"))
		}
		switch v := p.volumes[d.Name]; {
		case v == nil:
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		names.Insert(d.Name)
		if d.DevicePath == "" {
			errs = append(errs, field.Required(at.Child("devicePath"), ""))
		}
		if paths.Has(d.DevicePath) {
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		}
		paths.Insert(d.DevicePath)
		if slices.Contains(strings.Split(d.DevicePath, "/"), "..") {
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "can not contain backsteps ('..')"))
		}
		if mounted.Has(d.DevicePath) {
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must not already exist as a path in volumeMounts"))
		}
	}
	return errs
}

func validateResizePolicy(policies []corev1.ContainerResizePolicy, restart corev1.RestartPolicy, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[corev1.ResourceName]{}
	for i, p := range policies {
		if seen.Has(p.ResourceName) {
			errs = append(errs, field.Duplicate(at.Index(i), p.ResourceName))
		}
		seen.Insert(p.ResourceName)
		errs = append(errs, validate.OneOf(p.ResourceName, at, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, validate.OneOf(p.RestartPolicy, at, corev1.NotRequired, corev1.RestartContainer)...)
		if restart == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired && p.RestartPolicy != "" {
			errs = append(errs, field.Invalid(at, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// validateRestart checks a container's own restart policy and its rules (KEP-5307).
func (p podParts) validateRestart(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.RestartPolicy != nil {
		errs = append(errs, validate.NotSupportedUnless(*c.RestartPolicy, at.Child("restartPolicy"), corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	}
	if len(c.RestartPolicyRules) == 0 {
		return errs
	}
	rules := at.Child("restartPolicyRules")
	if c.RestartPolicy == nil {
		errs = append(errs, field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	if len(c.RestartPolicyRules) > 20 {
		errs = append(errs, field.TooMany(rules, len(c.RestartPolicyRules), 20))
	}
	for i, rule := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, validate.NotSupportedUnless(rule.Action, at.Child("action"), corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)...)
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, validate.NotSupportedUnless(rule.ExitCodes.Operator, at.Child("exitCodes", "operator"), corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if len(rule.ExitCodes.Values) > 255 {
			errs = append(errs, field.TooMany(at.Child("exitCodes", "values"), len(rule.ExitCodes.Values), 255))
		}
	}
	return errs
}

package pods

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func validatePodCreate(p *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(validatePod(p), validateAppArmorAgrees(p.Annotations, &p.Spec, spec)...)
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if len(p.Spec.SchedulingGates) > 0 && p.Spec.NodeName != "" {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

// validatePod checks the rules for creates and updates of a pod.
func validatePod(p *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if value, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror && p.Spec.NodeName == "" {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set"))
	}
	if p.Annotations[corev1.MirrorPodAnnotationKey] != "" && len(p.Spec.ResourceClaims) > 0 {
		// The path is upstream's.
		errs = append(errs, field.Forbidden(field.NewPath("[]"), "static pods do not support resource claims"))
	}
	errs = append(errs, validateAppArmorAnnotations(p.Annotations, &p.Spec, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validatePodSpec(&p.Spec, p.Name, spec)...)
	for i, c := range p.Spec.InitContainers {
		errs = append(errs, validateImagePadding(c.Image, spec.Child("initContainers").Index(i).Child("image"))...)
	}
	for i, c := range p.Spec.Containers {
		errs = append(errs, validateImagePadding(c.Image, spec.Child("containers").Index(i).Child("image"))...)
	}
	if p.Spec.ServiceAccountName == "" {
		for i, v := range p.Spec.Volumes {
			if v.Projected == nil {
				continue
			}
			for j, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil {
					errs = append(errs, field.Forbidden(spec.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
						"must not be specified when serviceAccountName is not set"))
				}
			}
		}
	}
	return append(errs, podParts{spec: &p.Spec}.validateEphemeralTargets(spec.Child("ephemeralContainers"))...)
}

// validatePodSpec checks a pod's spec. podName is "" for a template.
func validatePodSpec(spec *corev1.PodSpec, podName string, at *field.Path) field.ErrorList {
	volumes, errs := validateVolumes(spec.Volumes, podName, at.Child("volumes"))
	p := podParts{spec: spec, volumes: volumes}
	errs = append(errs, validatePodClaims(spec.ResourceClaims, at.Child("resourceClaims"))...)
	errs = append(errs, p.validateContainers(at.Child("containers"))...)
	errs = append(errs, p.validateInitContainers(at.Child("initContainers"))...)
	errs = append(errs, p.validateEphemeral(at.Child("ephemeralContainers"))...)
	errs = append(errs, p.validatePodResources(at.Child("resources"))...)
	errs = append(errs, validate.OneOf(spec.RestartPolicy, at.Child("restartPolicy"), corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, validate.OneOf(spec.DNSPolicy, at.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.NodeSelector, at.Child("nodeSelector"))...)
	errs = append(errs, p.validatePodSecurity(at)...)
	errs = append(errs, validateAffinity(spec.Affinity, at.Child("affinity"))...)
	errs = append(errs, validateDNSConfig(spec.DNSConfig, spec.DNSPolicy, at.Child("dnsConfig"))...)
	errs = append(errs, validateGates(spec, at)...)
	errs = append(errs, validateSpread(spec.TopologySpreadConstraints, at.Child("topologySpreadConstraints"))...)
	errs = append(errs, p.validateWindowsHostProcess(at)...)
	errs = append(errs, validatePodNames(spec, at)...)
	if seconds := spec.ActiveDeadlineSeconds; seconds != nil && (*seconds < 1 || *seconds > math.MaxInt32) {
		errs = append(errs, field.Invalid(at.Child("activeDeadlineSeconds"), *seconds, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	errs = append(errs, ValidateTolerations(spec.Tolerations, at.Child("tolerations"))...)
	errs = append(errs, validateHostAliases(spec.HostAliases, at.Child("hostAliases"))...)
	if spec.PreemptionPolicy != nil {
		errs = append(errs, validate.OneOf(*spec.PreemptionPolicy, at.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	if spec.Overhead != nil {
		errs = append(errs, validateRequirements(&corev1.ResourceRequirements{Limits: spec.Overhead}, validate.ContainerResourceName, at.Child("overhead"))...)
	}
	return append(errs, p.validateOS(at)...)
}

// validatePodNames checks the names that a pod refers to or carries.
func validatePodNames(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name := spec.ServiceAccountName; name != "" {
		errs = append(errs, validate.Invalids(at.Child("serviceAccountName"), name, apivalidation.ValidateServiceAccountName(name, false))...)
	}
	if name := spec.NodeName; name != "" {
		errs = append(errs, validate.Invalids(at.Child("nodeName"), name, apivalidation.NameIsDNSSubdomain(name, false))...)
	}
	if spec.Hostname != "" {
		errs = append(errs, validate.Label(spec.Hostname, at.Child("hostname"))...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, validate.Label(spec.Subdomain, at.Child("subdomain"))...)
	}
	if o := spec.HostnameOverride; o != nil {
		if len(*o) > 64 {
			errs = append(errs, field.TooLong(at.Child("hostnameOverride"), *o, 64))
		}
		errs = append(errs, validate.Subdomain(*o, at.Child("hostnameOverride"))...)
		if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
			errs = append(errs, field.Forbidden(at.Child("hostnameOverride"), "may not be specified when `setHostnameAsFQDN` is true"))
		}
		if spec.HostNetwork {
			errs = append(errs, field.Forbidden(at.Child("hostnameOverride"), "may not be specified when `hostNetwork` is true"))
		}
	}
	if name := spec.PriorityClassName; name != "" {
		errs = append(errs, validate.Invalids(at.Child("priorityClassName"), name, apivalidation.NameIsDNSSubdomain(name, false))...)
	}
	if name := spec.RuntimeClassName; name != nil {
		errs = append(errs, validate.Invalids(at.Child("runtimeClassName"), *name, apivalidation.NameIsDNSSubdomain(*name, false))...)
	}
	return errs
}

func validateGates(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, validate.Qualified(string(gate.ConditionType), at.Child("readinessGates").Index(i).Child("conditionType"))...)
	}
	if group := spec.SchedulingGroup; group != nil {
		errs = append(errs, validateSchedulingGroup(group, at.Child("schedulingGroup", "podGroupName"))...)
	}
	seen := sets.Set[string]{}
	for i, gate := range spec.SchedulingGates {
		at := at.Child("schedulingGates").Index(i)
		if gate.Name == "" {
			errs = append(errs, field.Required(at, "must not be empty"))
			continue
		}
		errs = append(errs, validate.Qualified(gate.Name, at)...)
		if seen.Has(gate.Name) {
			errs = append(errs, field.Duplicate(at, gate.Name))
		}
		seen.Insert(gate.Name)
	}
	return errs
}

func validateSchedulingGroup(group *corev1.PodSchedulingGroup, at *field.Path) field.ErrorList {
	if group.PodGroupName == nil {
		return field.ErrorList{field.Invalid(at, group.PodGroupName, "must specify one of: `podGroupName`")}
	}
	return validate.Subdomain(*group.PodGroupName, at)
}

func validateHostAliases(aliases []corev1.HostAlias, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, alias := range aliases {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Index(i).Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, validate.Subdomain(name, at.Index(i).Child("hostnames").Index(j))...)
		}
	}
	return errs
}

const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

func validateDNSConfig(c *corev1.PodDNSConfig, policy corev1.DNSPolicy, at *field.Path) field.ErrorList {
	if policy == corev1.DNSNone {
		if c == nil {
			return field.ErrorList{field.Required(at, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))}
		}
		if len(c.Nameservers) == 0 {
			return field.ErrorList{field.Required(at.Child("nameservers"), fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))}
		}
	}
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if len(c.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(at.Child("nameservers"), c.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers)))
	}
	for i, server := range c.Nameservers {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Child("nameservers").Index(i), server, true, nil)...)
	}
	if len(c.Searches) > maxSearches {
		errs = append(errs, field.Invalid(at.Child("searches"), c.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches)))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchLength {
		errs = append(errs, field.Invalid(at.Child("searches"), c.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength)))
	}
	for i, search := range c.Searches {
		if search == "." {
			continue
		}
		name := strings.TrimSuffix(search, ".")
		errs = append(errs, validate.Invalids(at.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(name))...)
	}
	for i, option := range c.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

func validatePodClaims(claims []corev1.PodResourceClaim, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[string]{}
	for i, claim := range claims {
		at := at.Index(i)
		if claim.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else if seen.Has(claim.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), claim.Name))
		} else {
			errs = append(errs, validate.Label(claim.Name, at.Child("name"))...)
		}
		seen.Insert(claim.Name)
		switch {
		case claim.ResourceClaimName != nil && claim.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case claim.ResourceClaimName == nil && claim.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if claim.ResourceClaimName != nil {
			errs = append(errs, validate.Subdomain(*claim.ResourceClaimName, at.Child("resourceClaimName"))...)
		}
		if claim.ResourceClaimTemplateName != nil {
			errs = append(errs, validate.Subdomain(*claim.ResourceClaimTemplateName, at.Child("resourceClaimTemplateName"))...)
		}
	}
	return errs
}

// validateWindowsHostProcess checks that either all containers or none run as Windows host
// processes.
func (p podParts) validateWindowsHostProcess(at *field.Path) field.ErrorList {
	hostProcess := func(w *corev1.WindowsSecurityContextOptions) *bool {
		if w == nil {
			return nil
		}
		return w.HostProcess
	}
	var errs field.ErrorList
	var pod *bool
	if s := p.spec.SecurityContext; s != nil {
		pod = hostProcess(s.WindowsOptions)
	}
	total, host := len(p.spec.Containers)+len(p.spec.InitContainers)+len(p.spec.EphemeralContainers), 0
	inherited := total
	p.eachSecurityContext(at, func(s *corev1.SecurityContext, at *field.Path) {
		own := hostProcess(s.WindowsOptions)
		if own == nil {
			return
		}
		inherited--
		if *own {
			host++
		}
		if pod != nil && *own != *pod {
			errs = append(errs, field.Invalid(at.Child("windowsOptions", "hostProcess"), *own, fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod)))
		}
	})
	if pod != nil && *pod {
		host += inherited
	}
	if host == 0 {
		return errs
	}
	if host != total {
		errs = append(errs, field.Invalid(at, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if !p.spec.HostNetwork {
		errs = append(errs, field.Invalid(at.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}

// validateEphemeral checks ephemeral containers, which may not use some fields of containers.
func (p podParts) validateEphemeral(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i := range p.spec.Containers {
		names.Insert(p.spec.Containers[i].Name)
	}
	for i := range p.spec.InitContainers {
		names.Insert(p.spec.InitContainers[i].Name)
	}
	for i := range p.spec.EphemeralContainers {
		e, at := &p.spec.EphemeralContainers[i], at.Index(i)
		c := corev1.Container(e.EphemeralContainerCommon)
		const why = "cannot be set for an Ephemeral Container"
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"ports", len(c.Ports) > 0}, {"resources", len(c.Resources.Limits)+len(c.Resources.Requests)+len(c.Resources.Claims) > 0},
			{"livenessProbe", c.LivenessProbe != nil}, {"readinessProbe", c.ReadinessProbe != nil}, {"startupProbe", c.StartupProbe != nil},
			{"lifecycle", c.Lifecycle != nil}, {"resizePolicy", len(c.ResizePolicy) > 0}, {"restartPolicy", c.RestartPolicy != nil},
			{"restartPolicyRules", c.RestartPolicyRules != nil},
		} {
			if f.set {
				errs = append(errs, field.Forbidden(at.Child(f.name), why))
			}
		}
		for j, m := range c.VolumeMounts {
			if m.SubPath != "" {
				errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child("subPath"), why))
			}
			if m.SubPathExpr != "" {
				errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child("subPathExpr"), why))
			}
		}
		errs = append(errs, p.validateContainer(&c, names, at)...)
	}
	return errs
}

// validateEphemeralTargets checks that an ephemeral container's target is a container of the pod.
func (p podParts) validateEphemeralTargets(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i := range p.spec.Containers {
		names.Insert(p.spec.Containers[i].Name)
	}
	for i := range p.spec.InitContainers {
		names.Insert(p.spec.InitContainers[i].Name)
	}
	for i := range p.spec.EphemeralContainers {
		if target := p.spec.EphemeralContainers[i].TargetContainerName; target != "" && !names.Has(target) {
			errs = append(errs, field.NotFound(at.Index(i).Child("targetContainerName"), target))
		}
	}
	return errs
}

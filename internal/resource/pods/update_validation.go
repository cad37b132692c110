package pods

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

const notNegative = "must be a non-negative integer"

// mutablePodFields is the list of mutable fields in upstream's message.
var mutablePodFields = strings.Join([]string{
	"`spec.containers[*].image`", "`spec.initContainers[*].image`", "`spec.activeDeadlineSeconds`",
	"`spec.tolerations` (only additions to existing tolerations)",
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
}, ",")

// validatePodUpdate allows changes of images and the deadline, added tolerations and removed gates.
// A gated pod may also narrow its node selection.
func validatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(validatePod(p), validateAppArmorUpdate(p, old)...)
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(spec.Child("containers"), "pod updates may not add or remove containers"))
	}
	if len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(spec.Child("initContainers"), "pod updates may not add or remove containers"))
	}
	errs = append(errs, validateDeadlineUpdate(p, old, spec.Child("activeDeadlineSeconds"))...)
	errs = append(errs, validateAddedTolerations(p.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"))...)
	gates := sets.New(old.Spec.SchedulingGates...)
	for i, gate := range p.Spec.SchedulingGates {
		if !gates.Has(gate) {
			errs = append(errs, field.Forbidden(spec.Child("schedulingGates").Index(i), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}

	// Reset the mutable fields to their old values; any difference left is an illegal change.
	munged := p.Spec.DeepCopy()
	for i := range munged.Containers {
		munged.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range munged.InitContainers {
		munged.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	munged.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	munged.SchedulingGates = old.Spec.SchedulingGates
	munged.Tolerations = old.Spec.Tolerations
	if grace := old.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 && p.Spec.TerminationGracePeriodSeconds != nil && *p.Spec.TerminationGracePeriodSeconds == 1 {
		munged.TerminationGracePeriodSeconds = grace
	}
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, narrowSelection(munged, &old.Spec, spec)...)
	}
	if !validate.Equal(munged, &old.Spec) {
		errs = append(errs, field.Forbidden(spec, fmt.Sprintf("pod updates may not change fields other than %s\n%v", mutablePodFields, validate.Difference(old.Spec, *munged))))
	}
	return errs
}

func validateDeadlineUpdate(p, old *corev1.Pod, at *field.Path) field.ErrorList {
	is, was := p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds
	switch {
	case is != nil && (*is < 0 || *is > math.MaxInt32):
		return field.ErrorList{field.Invalid(at, *is, validation.InclusiveRangeError(0, math.MaxInt32))}
	case is != nil && was != nil && *was < *is:
		return field.ErrorList{field.Invalid(at, *is, "must be less than or equal to previous value")}
	case is == nil && was != nil:
		return field.ErrorList{field.Invalid(at, is, "must not update from a positive integer to nil value")}
	}
	return nil
}

// validateAddedTolerations checks that the old tolerations remain; only their seconds may change.
func validateAddedTolerations(is, was []corev1.Toleration, at *field.Path) field.ErrorList {
	found := sets.Set[corev1.Toleration]{}
	for _, t := range is {
		t.TolerationSeconds = nil
		found.Insert(t)
	}
	for _, t := range was {
		t.TolerationSeconds = nil
		if !found.Has(t) {
			return field.ErrorList{field.Forbidden(at, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return ValidateTolerations(is, at)
}

// narrowSelection checks changes of a gated pod's node selector and node affinity. It resets them
// in munged.
func narrowSelection(munged, old *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, value := range old.NodeSelector {
		if munged.NodeSelector[key] != value {
			errs = append(errs, field.Invalid(at.Child("nodeSelector"), munged.NodeSelector, "only additions are allowed to spec.nodeSelector (no mutations or deletions)"))
			break
		}
	}
	munged.NodeSelector = old.NodeSelector
	was, is := requiredNodes(old.Affinity), requiredNodes(munged.Affinity)
	if was != nil {
		at := at.Child("affinity", "nodeAffinity", requiredTerms, "nodeSelectorTerms")
		errs = append(errs, narrowTerms(is, was, at)...)
	}
	// Preferred terms and added requirements are free; the rest of the affinity must not change.
	if munged.Affinity != nil {
		munged.Affinity = munged.Affinity.DeepCopy()
		munged.Affinity.NodeAffinity = nil
		if old.Affinity != nil {
			munged.Affinity.NodeAffinity = old.Affinity.NodeAffinity
		} else if munged.Affinity.PodAffinity == nil && munged.Affinity.PodAntiAffinity == nil {
			munged.Affinity = nil
		}
	} else if old.Affinity != nil && old.Affinity.PodAffinity == nil && old.Affinity.PodAntiAffinity == nil && was == nil {
		munged.Affinity = old.Affinity
	}
	return errs
}

func requiredNodes(a *corev1.Affinity) *corev1.NodeSelector {
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func narrowTerms(is, was *corev1.NodeSelector, at *field.Path) field.ErrorList {
	if len(was.NodeSelectorTerms) > 0 && (is == nil || len(is.NodeSelectorTerms) != len(was.NodeSelectorTerms)) {
		var terms []corev1.NodeSelectorTerm
		if is != nil {
			terms = is.NodeSelectorTerms
		}
		return field.ErrorList{field.Invalid(at, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	var errs field.ErrorList
	for i, term := range was.NodeSelectorTerms {
		kept := func(old, now []corev1.NodeSelectorRequirement) bool {
			return len(now) >= len(old) && validate.Equal(now[:len(old)], old)
		}
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 && !validate.Equal(term, is.NodeSelectorTerms[i]) ||
			!kept(term.MatchExpressions, is.NodeSelectorTerms[i].MatchExpressions) || !kept(term.MatchFields, is.NodeSelectorTerms[i].MatchFields) {
			errs = append(errs, field.Invalid(at.Index(i), is.NodeSelectorTerms[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	status := field.NewPath("status")
	errs := validateAppArmorUpdate(p, old)
	if p.Spec.NodeName != old.Spec.NodeName {
		errs = append(errs, field.Forbidden(status.Child("nodeName"), "may not be changed directly"))
	}
	if name := p.Status.NominatedNodeName; name != "" {
		errs = append(errs, validate.Invalids(status.Child("nominatedNodeName"), name, apivalidation.NameIsDNSSubdomain(name, false))...)
		if name != old.Status.NominatedNodeName && p.Spec.NodeName != "" {
			errs = append(errs, field.Forbidden(status.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node"))
		}
	}
	errs = append(errs, validateTransitions(p.Status.ContainerStatuses, old.Status.ContainerStatuses, &old.Spec, old.Spec.Containers, status.Child("containerStatuses"))...)
	errs = append(errs, validateInitTransitions(p.Status.InitContainerStatuses, old.Status.InitContainerStatuses, &old.Spec, status.Child("initContainerStatuses"))...)
	if is := p.Status.QOSClass; is != old.Status.QOSClass && is != storedQOS(old) {
		errs = append(errs, field.Invalid(status.Child("qosClass"), p.Status.QOSClass, apivalidation.FieldImmutableErrorMsg))
	}
	var podIPs, hostIPs []string
	for _, ip := range p.Status.PodIPs {
		podIPs = append(podIPs, ip.IP)
	}
	for _, ip := range p.Status.HostIPs {
		hostIPs = append(hostIPs, ip.IP)
	}
	errs = append(errs, validateIPList(podIPs, validate.StoredIn(validate.TextsOf(old.Status.PodIPs, func(ip corev1.PodIP) string { return ip.IP })), status.Child("podIPs"))...)
	errs = append(errs, validateIPList(hostIPs, validate.StoredIn(validate.TextsOf(old.Status.HostIPs, func(ip corev1.HostIP) string { return ip.IP })), status.Child("hostIPs"))...)
	if len(hostIPs) > 0 && hostIPs[0] != p.Status.HostIP {
		errs = append(errs, field.Invalid(status.Child("hostIPs").Index(0).Child("ip"), hostIPs[0], "must be equal to `hostIP`"))
	}
	errs = append(errs, validateContainerStatuses(p, status)...)
	for i, c := range p.Status.Conditions {
		errs = append(errs, validate.Qualified(string(c.Type), status.Child("conditions").Index(i).Child("Type"))...)
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(status.Child("conditions").Index(i).Child("observedGeneration"), c.ObservedGeneration, notNegative))
		}
	}
	if p.Status.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(status.Child("observedGeneration"), p.Status.ObservedGeneration, notNegative))
	}
	errs = append(errs, validateClaimStatuses(p, status)...)
	return append(errs, validateExtendedClaim(p, status.Child("extendedResourceClaimStatus"))...)
}

func validateClaimStatuses(p *corev1.Pod, status *field.Path) field.ErrorList {
	var errs field.ErrorList
	declared := sets.Set[string]{}
	for _, c := range p.Spec.ResourceClaims {
		declared.Insert(c.Name)
	}
	seen := sets.Set[string]{}
	for i, s := range p.Status.ResourceClaimStatuses {
		at := status.Child("resourceClaimStatuses").Index(i)
		if !declared.Has(s.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if seen.Has(s.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		seen.Insert(s.Name)
		if s.ResourceClaimName != nil {
			errs = append(errs, validate.Subdomain(*s.ResourceClaimName, at.Child("name"))...)
		}
	}
	return errs
}

// validateIPList checks a dual-stack list: valid addresses, at most one of each family.
func validateIPList(ips []string, before *validate.Stored, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range ips {
		errs = append(errs, validate.StoredIP(ip, before, at.Index(i))...)
	}
	if len(ips) < 2 {
		return errs
	}
	both, err := netutils.IsDualStackIPStrings(ips)
	if err != nil {
		errs = append(errs, field.InternalError(at, fmt.Errorf("failed to check for dual stack with error:%w", err)))
	}
	if !both || len(ips) > 2 {
		errs = append(errs, field.Invalid(at, ips, "may specify no more than one IP for each IP family"))
	}
	return errs
}

// restartsAll reports whether the end of a container can restart all containers of the pod,
// whatever their restart policies say (KEP-5532).
func restartsAll(spec *corev1.PodSpec) bool {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, rule := range list[i].RestartPolicyRules {
				if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

// validateTransitions refuses to restart a terminated container whose restart policy forbids it.
func validateTransitions(is, was []corev1.ContainerStatus, spec *corev1.PodSpec, containers []corev1.Container, at *field.Path) field.ErrorList {
	if spec.RestartPolicy == corev1.RestartPolicyAlways || restartsAll(spec) {
		return nil
	}
	var errs field.ErrorList
	places := containerPlaces(containers)
	running := map[string]int{} // the number of statuses of each name that are not terminated
	for i := range is {
		if is[i].State.Terminated == nil {
			running[is[i].Name]++
		}
	}
	for i := range was {
		old := &was[i]
		if old.State.Terminated == nil {
			continue
		}
		if j, ok := places[old.Name]; ok && (containers[j].RestartPolicy != nil || len(containers[j].RestartPolicyRules) > 0) {
			continue // the container has a restart policy of its own
		}
		if old.State.Terminated.ExitCode != 0 && spec.RestartPolicy == corev1.RestartPolicyOnFailure {
			continue
		}
		// Both lists may contain the name several times.
		for range min(running[old.Name], validate.MaxRepeated-len(errs)) {
			errs = append(errs, field.Forbidden(at.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

// containerPlaces maps names of containers to their first index.
func containerPlaces(containers []corev1.Container) map[string]int {
	return firstPlaces(len(containers), func(i int) string { return containers[i].Name })
}

// firstPlaces maps each of n names to its first index.
func firstPlaces(n int, name func(i int) string) map[string]int {
	places := make(map[string]int, n)
	for i := range n {
		if _, known := places[name(i)]; !known {
			places[name(i)] = i
		}
	}
	return places
}

// validateInitTransitions is validateTransitions for init containers; sidecars restart by their own
// policy.
func validateInitTransitions(is, was []corev1.ContainerStatus, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	return validateTransitions(is, was, spec, spec.InitContainers, at)
}

func validateEphemeralUpdate(p, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := partsOf(&p.Spec).validateEphemeral(spec.Child("ephemeralContainers"))
	errs = append(errs, podParts{spec: &p.Spec}.validateEphemeralTargets(spec.Child("ephemeralContainers"))...)
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return append(errs, field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers"))
	}
	places := firstPlaces(len(p.Spec.EphemeralContainers), func(i int) string { return p.Spec.EphemeralContainers[i].Name })
	for _, was := range old.Spec.EphemeralContainers {
		at := spec.Child("ephemeralContainers")
		i, ok := places[was.Name]
		switch {
		case !ok:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
		case !validate.Equal(was, p.Spec.EphemeralContainers[i]):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", was.Name, validate.Difference(was, p.Spec.EphemeralContainers[i]))))
		}
	}
	return errs
}

// validateResize lets CPU and memory of containers change as long as the pod's QoS class stays.
func validateResize(p, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support in-place resize")}
	}
	if errs := validateSameContainers(p, old); len(errs) > 0 {
		return errs // the checks below compare containers by their place
	}
	errs := validatePod(p)
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return append(errs, field.Forbidden(field.NewPath(""), "windows pods do not support in-place resize"))
	}
	if QOSClass(p) != QOSClass(old) {
		errs = append(errs, field.Invalid(spec, old.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	for i := range old.Spec.Containers {
		errs = append(errs, validateNotRemoved(&p.Spec.Containers[i], &old.Spec.Containers[i], spec.Child("containers").Index(i))...)
	}
	for i := range old.Spec.Containers {
		if moreThanResized(&p.Spec.Containers[i], &old.Spec.Containers[i]) {
			errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable"))
			break
		}
	}
	for i := range old.Spec.InitContainers {
		is, was, at := &p.Spec.InitContainers[i], &old.Spec.InitContainers[i], spec.Child("initContainers").Index(i)
		errs = append(errs, validateNotRemoved(is, was, at)...)
		if moreThanResized(is, was) {
			errs = append(errs, field.Forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable"))
		}
		restarts := func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer }
		if !isSidecar(was) && slices.ContainsFunc(is.ResizePolicy, restarts) {
			errs = append(errs, field.Forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
		}
	}
	return errs
}

// validateSameContainers refuses a resize that adds, removes, renames or moves containers.
func validateSameContainers(p, old *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name    string
		is, was []corev1.Container
	}{{"containers", p.Spec.Containers, old.Spec.Containers}, {"initContainers", p.Spec.InitContainers, old.Spec.InitContainers}} {
		at := field.NewPath("spec", list.name)
		if len(list.is) != len(list.was) {
			errs = append(errs, field.Forbidden(at, "containers may not be added or removed on resize"))
			continue
		}
		for i := range list.is {
			if list.is[i].Name != list.was[i].Name {
				errs = append(errs, field.Forbidden(at.Index(i).Child("name"), "containers may not be renamed or reordered on resize"))
			}
		}
	}
	return errs
}

// sameNames reports whether two lists have containers of the same names in the same order.
func sameNames(a, b []corev1.Container) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Container) bool { return a.Name == b.Name })
}

// validateNotRemoved refuses to remove a CPU or memory amount; it may only change.
func validateNotRemoved(is, was *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name    string
		is, was corev1.ResourceList
	}{{"limits", is.Resources.Limits, was.Resources.Limits}, {"requests", is.Resources.Requests, was.Resources.Requests}} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			_, had := list.was[name]
			if _, has := list.is[name]; had && !has {
				errs = append(errs, field.Forbidden(at.Child("resources", list.name), "resource "+list.name+" cannot be removed"))
				break
			}
		}
	}
	return errs
}

// moreThanResized reports whether resource settings other than CPU and memory changed.
func moreThanResized(is, was *corev1.Container) bool {
	return !validate.Equal(others(is.Resources.Limits), others(was.Resources.Limits)) || !validate.Equal(others(is.Resources.Requests), others(was.Resources.Requests)) ||
		!validate.Equal(is.Resources.Claims, was.Resources.Claims) || !validate.Equal(is.ResizePolicy, was.ResizePolicy)
}

// others returns the list without the resources that a resize may change.
func others(list corev1.ResourceList) corev1.ResourceList {
	rest := maps.Clone(list)
	delete(rest, corev1.ResourceCPU)
	delete(rest, corev1.ResourceMemory)
	if len(rest) == 0 {
		return nil
	}
	return rest
}

package pods

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/storage"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

// podWarnings warns of valid but discouraged settings in a pod or pod template. An update warns
// only for templates, and only when it changes something about the pods. Versions and texts are
// upstream's, because clients know them.
func podWarnings(obj, old runtime.Object) []string {
	if pod, ok := obj.(*corev1.Pod); ok {
		if old != nil {
			return nil
		}
		return warnedPod{pod.Annotations, &pod.Spec, nil}.warnings()
	}
	template, at := templateOf(obj)
	if template == nil {
		return nil
	}
	if old != nil && !WarnedAgain(obj, old) {
		return nil
	}
	return warnedPod{template.Annotations, &template.Spec, at}.warnings()
}

// warnedPod is the pod or template under inspection; at is nil for a pod.
type warnedPod struct {
	annotations map[string]string
	spec        *corev1.PodSpec
	at          *field.Path
}

func (p warnedPod) path(name string, more ...string) *field.Path {
	if p.at == nil {
		return field.NewPath(name, more...)
	}
	return p.at.Child(name, more...)
}

func (p warnedPod) warnings() []string {
	at := p.path("spec")
	out := warnSelection(p.spec, at)
	out = append(out, warnVolumes(p.spec.Volumes, at.Child("volumes"))...)
	out = append(out, warnRepeated(p.spec, at)...)
	out = append(out, validate.WarnFractions(corev1.ResourceMemory, p.spec.Overhead, at.Child("overhead"))...)
	const seccomp = corev1.SeccompPodAnnotationKey
	if _, ok := p.annotations[seccomp]; ok && (p.spec.SecurityContext == nil || p.spec.SecurityContext.SeccompProfile == nil) {
		out = append(out, fmt.Sprintf(`%s: non-functional in v1.27+; use the "seccompProfile" field instead`, p.path("metadata", "annotations").Key(seccomp)))
	}
	for i := range p.spec.InitContainers {
		out = append(out, p.warnContainer(&p.spec.InitContainers[i], at.Child("initContainers").Index(i))...)
	}
	for i := range p.spec.Containers {
		out = append(out, p.warnContainer(&p.spec.Containers[i], at.Child("containers").Index(i))...)
	}
	out = append(out, warnPorts(p.spec, at)...)
	if seconds := p.spec.TerminationGracePeriodSeconds; seconds != nil && *seconds < 0 {
		out = append(out, fmt.Sprintf("%s: must be >= 0; negative values are invalid and will be treated as 1", at.Child("terminationGracePeriodSeconds")))
	}
	out = append(out, warnEmptySelectors(p.spec.Affinity, at.Child("affinity"))...)
	if p.spec.DNSConfig != nil {
		for i, ip := range p.spec.DNSConfig.Nameservers {
			out = append(out, validate.WarnIP(ip, at.Child("dnsConfig", "nameservers").Index(i))...)
		}
	}
	for i, alias := range p.spec.HostAliases {
		out = append(out, validate.WarnIP(alias.IP, at.Child("hostAliases").Index(i).Child("ip"))...)
	}
	return out
}

func warnSelection(spec *corev1.PodSpec, at *field.Path) []string {
	var out []string
	out = append(out, validate.WarnLabelsOf(spec.NodeSelector, func(label string) *field.Path { return at.Child("nodeSelector").Key(label) })...)
	requirements := func(list []corev1.NodeSelectorRequirement, at *field.Path) {
		for i, r := range list {
			out = append(out, validate.WarnOldLabel(r.Key, at.Index(i).Child("key"))...)
		}
	}
	// Warns of values that no node label can have.
	noLabels := func(list []corev1.NodeSelectorRequirement, at *field.Path) {
		for i, r := range list {
			for j, value := range r.Values {
				for _, wrong := range validation.IsValidLabelValue(value) {
					out = append(out, fmt.Sprintf("%s: %s is invalid, %s", at.Index(i).Child("values").Index(j), value, wrong))
				}
			}
		}
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil {
		at := at.Child("affinity", "nodeAffinity")
		if r := requiredNodes(a); r != nil {
			for i, term := range r.NodeSelectorTerms {
				requirements(term.MatchExpressions, at.Child(requiredTerms, "nodeSelectorTerms").Index(i).Child("matchExpressions"))
			}
		}
		for i, term := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			at := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference", "matchExpressions")
			requirements(term.Preference.MatchExpressions, at)
			noLabels(term.Preference.MatchExpressions, at)
		}
	}
	for i, c := range spec.TopologySpreadConstraints {
		at := at.Child("topologySpreadConstraints").Index(i)
		out = append(out, validate.WarnOldLabel(c.TopologyKey, at.Child("topologyKey"))...)
		if c.LabelSelector == nil {
			out = append(out, matchesNothing(at))
		}
	}
	return out
}

func matchesNothing(at *field.Path) string {
	return fmt.Sprintf("%s: a null labelSelector results in matching no pod", at.Child("labelSelector"))
}

func warnEmptySelectors(a *corev1.Affinity, at *field.Path) []string {
	var out []string
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i, t := range required {
			if t.LabelSelector == nil {
				out = append(out, matchesNothing(at.Child(requiredTerms).Index(i)))
			}
		}
		for i, t := range preferred {
			if t.PodAffinityTerm.LabelSelector == nil {
				out = append(out, matchesNothing(at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm")))
			}
		}
	}
	if a != nil && a.PodAffinity != nil {
		terms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if a != nil && a.PodAntiAffinity != nil {
		terms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
	return out
}

func warnVolumes(volumes []corev1.Volume, at *field.Path) []string {
	var out, rest []string
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		for _, name := range slices.Sorted(maps.Keys(storage.SourcesIn(v.VolumeSource))) {
			if old, ok := storage.OldVolumes[name]; ok {
				out = append(out, fmt.Sprintf("%s.%s", at, old))
			}
		}
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			resources, at := v.Ephemeral.VolumeClaimTemplate.Spec.Resources, at.Child("ephemeral", "volumeClaimTemplate", "spec", "resources")
			out = append(out, validate.WarnFractions(corev1.ResourceStorage, resources.Requests, at.Child("requests"))...)
			out = append(out, validate.WarnFractions(corev1.ResourceStorage, resources.Limits, at.Child("limits"))...)
		}
		if v.Projected != nil && slices.Contains(v.Projected.Sources, corev1.VolumeProjection{}) {
			rest = append(rest, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
		}
		rest = append(rest, warnPaths(v)...)
	}
	return append(out, rest...)
}

// warnRepeated warns of list entries that server-side apply treats as the same entry.
func warnRepeated(spec *corev1.PodSpec, at *field.Path) []string {
	var out []string
	seen := map[string]bool{}
	for i, alias := range spec.HostAliases {
		if seen[alias.IP] {
			out = append(out, fmt.Sprintf("%s: duplicate ip %q", at.Child("hostAliases").Index(i).Child("ip"), alias.IP))
		}
		seen[alias.IP] = true
	}
	seen = map[string]bool{}
	var empty []string
	for i, secret := range spec.ImagePullSecrets {
		at := at.Child("imagePullSecrets").Index(i).Child("name")
		if seen[secret.Name] {
			out = append(out, fmt.Sprintf("%s: duplicate name %q", at, secret.Name))
		}
		seen[secret.Name] = true
		if secret.Name == "" {
			empty = append(empty, fmt.Sprintf("%s: invalid empty name %q", at, secret.Name))
		}
	}
	return append(out, empty...)
}

func (p warnedPod) warnContainer(c *corev1.Container, at *field.Path) []string {
	var out []string
	// warnAppArmor handles pods.
	if _, own := annotatedAppArmor(p.annotations, p.spec, c); own && p.at != nil {
		out = append(out, oldAppArmor(p.path("metadata", "annotations"), c))
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		out = append(out, validate.WarnFractions(name, c.Resources.Limits, at.Child("resources", "limits"))...)
		out = append(out, validate.WarnFractions(name, c.Resources.Requests, at.Child("resources", "requests"))...)
	}
	seen := map[string]bool{}
	for i, e := range c.Env {
		before := "$(" + e.Name + ")"
		// A later value may refer to the earlier one and extend it.
		if seen[e.Name] && (e.Value == before || !strings.Contains(e.Value, before)) {
			out = append(out, fmt.Sprintf("%s: hides previous definition of %q, which may be dropped when using apply", at.Child("env").Index(i), e.Name))
		}
		seen[e.Name] = true
	}
	return out
}

// Limits of all warnings of one response together, in runes: the total, and how much one warning
// counts at most (internal/apiserver/warnings.go).
const (
	warnedRunes    = 4096
	warnedRunesOne = 256
)

// warnPorts warns of every pair of ports that conflict or may conflict. It stops when the warnings
// exceed what a response can carry.
func warnPorts(spec *corev1.PodSpec, at *field.Path) []string {
	var out []string
	all, seen, runes := placedPorts(spec, at), seenPorts{}, 0
	for n, here := range all {
		if here.port.HostIP != "" && here.port.HostPort == 0 {
			out = append(out, fmt.Sprintf("%s: hostIP set without hostPort: %+v", here, *here.port))
		}
		for _, before := range seen.like(here.port) {
			text := fmt.Sprintf("%s: %s port definition with %s", here, sharing(here.port, all[before].port), all[before])
			out = append(out, text)
			if runes += min(utf8.RuneCountInString(text), warnedRunesOne); runes > warnedRunes {
				return out
			}
		}
		seen.add(here.port, n)
	}
	return out
}

// placedPort is a port, its list's path and its index in the list.
type placedPort struct {
	port  *corev1.ContainerPort
	ports *field.Path
	index int
}

func (p placedPort) String() string { return p.ports.Index(p.index).String() }

func placedPorts(spec *corev1.PodSpec, at *field.Path) []placedPort {
	var all []placedPort
	place := func(containers []corev1.Container, at *field.Path) {
		for i := range containers {
			for j := range containers[i].Ports {
				all = append(all, placedPort{&containers[i].Ports[j], at.Index(i).Child("ports"), j})
			}
		}
	}
	place(spec.InitContainers, at.Child("initContainers"))
	place(spec.Containers, at.Child("containers"))
	return all
}

// sharing returns how two ports from seenPorts.like conflict.
func sharing(a, b *corev1.ContainerPort) string {
	switch {
	case a.HostPort == b.HostPort && a.HostIP == b.HostIP:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	}
	return "dangerously ambiguous" // one of them binds all addresses
}

// portKey holds the values that conflicting ports share. anyHostPort and anyHostIP are wildcards
// for all ports of a number and protocol.
type portKey struct {
	port     int32
	protocol corev1.Protocol
	hostPort int32
	hostIP   string
}

const (
	anyHostPort = -1
	anyHostIP   = "*"
)

// seenPorts indexes ports to find the conflicting ones. A pod may have many thousands; comparing
// every pair took seconds and gigabytes. The index costs three map entries per port.
type seenPorts map[portKey][]int

func (s seenPorts) add(p *corev1.ContainerPort, n int) {
	for _, key := range []portKey{
		{p.ContainerPort, p.Protocol, anyHostPort, anyHostIP}, {p.ContainerPort, p.Protocol, p.HostPort, anyHostIP}, {p.ContainerPort, p.Protocol, p.HostPort, p.HostIP},
	} {
		s[key] = append(s[key], n)
	}
}

// like returns, in order of addition, the ports with the same number and protocol that conflict
// with p: at least one of the two has no hostPort, or both have the same hostPort and their hostIPs
// are equal or one is missing.
func (s seenPorts) like(p *corev1.ContainerPort) []int {
	key := portKey{p.ContainerPort, p.Protocol, anyHostPort, anyHostIP}
	if p.HostPort == 0 {
		return s[key]
	}
	key.hostPort = 0
	found := slices.Clone(s[key])
	key.hostPort = p.HostPort
	if p.HostIP == "" {
		found = append(found, s[key]...)
	} else {
		key.hostIP = ""
		found = append(found, s[key]...)
		key.hostIP = p.HostIP
		found = append(found, s[key]...)
	}
	slices.Sort(found)
	return found
}

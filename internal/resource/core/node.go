package core

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func NodeStrategy() *strategy.Strategy {
	s := &strategy.Strategy{
		AllowUnconditionalUpdate: true,
		Default:                  strategy.On(defaultNode),
		// A create keeps the status: a kubelet registers its Node with it.
		PrepareUpdate: strategy.OnBoth(func(n, old *corev1.Node) { n.Status = *old.Status.DeepCopy() }),
		PrepareStatus: strategy.OnBoth(func(n, old *corev1.Node) {
			n.Spec = *old.Spec.DeepCopy()
			n.Status.Config = nil
		}),
		ValidateCreate: strategy.Checks(validateNode),
		ValidateUpdate: strategy.ChecksBoth(validateNodeUpdate),
		ValidateStatus: strategy.ChecksBoth(validateNodeStatus),
		FieldNames:     []string{"spec.unschedulable"},
		Fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(obj.(*corev1.Node).Spec.Unschedulable)}
		},
	}
	s.Warnings = nodeWarnings
	// Kubelets no longer read their configuration from the API.
	s.DropFields(func(obj, _ runtime.Object) {
		n := obj.(*corev1.Node)
		n.Spec.ConfigSource, n.Status.Config = nil, nil
	})
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), nodeColumns, nodeRow)
}

func defaultNode(n *corev1.Node) {
	// An empty list is not stored, so each reader would have to default it.
	if len(n.Status.Allocatable) == 0 && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	strategy.RoundResources(n.Status.Capacity)
	strategy.RoundResources(n.Status.Allocatable)
	// podCIDR and podCIDRs have the same meaning; podCIDR wins.
	switch spec := &n.Spec; {
	case spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR):
		spec.PodCIDRs = []string{spec.PodCIDR}
	case spec.PodCIDR == "" && len(spec.PodCIDRs) > 0:
		spec.PodCIDR = spec.PodCIDRs[0]
	}
}

func validateNode(n *corev1.Node) field.ErrorList { return validateNodeWith(n, nil) }

// validateNodeWith checks a node; ranges are its old pod CIDRs, which may have an ambiguous form.
func validateNodeWith(n *corev1.Node, ranges *validate.Stored) field.ErrorList {
	errs := validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints")) // upstream's path
	errs = append(errs, validatePodCIDRs(&n.Spec, ranges)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		// The path is upstream's.
		errs = append(errs, field.Invalid(field.NewPath("metadata", "nodeSwapStatus", "capacity"), *swap.Capacity, "must be greater than zero"))
	}
	errs = append(errs, validateDeclaredFeatures(n)...)
	return append(errs, validateNodeResources(n)...)
}

const maxFeatureName = 253

var featureName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*(/[A-Za-z][A-Za-z0-9]*)*$`)

// validateDeclaredFeatures checks the kubelet's declared features: names like those of feature
// gates, sorted and unique (KEP-5328).
func validateDeclaredFeatures(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	features := n.Status.DeclaredFeatures
	for i, name := range features {
		at := field.NewPath("status", "declaredFeatures").Index(i)
		if i > 0 && name == features[i-1] {
			errs = append(errs, field.Duplicate(at, name))
		}
		if i > 0 && name < features[i-1] {
			errs = append(errs, field.Invalid(at, name, "list must be sorted alphabetically"))
		}
		switch {
		case len(name) > maxFeatureName:
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", name, maxFeatureName)))
		case !featureName.MatchString(name):
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' "+
				"(e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", name)))
		}
	}
	return errs
}

func validateTaints(taints []corev1.Taint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[key]bool{}
	for i, t := range taints {
		at := at.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		if messages := validation.IsValidLabelValue(t.Value); len(messages) > 0 {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, strings.Join(messages, ";")))
		}
		errs = append(errs, pods.ValidateTaintEffect(t.Effect, at.Child("effect"))...)
		if k := (key{t.Key, t.Effect}); seen[k] {
			duplicate := field.Duplicate(at, t)
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		} else {
			seen[k] = true
		}
	}
	return errs
}

func validatePodCIDRs(s *corev1.NodeSpec, before *validate.Stored) field.ErrorList {
	at := validate.SpecPath.Child("podCIDRs")
	var errs field.ErrorList
	if len(s.PodCIDRs) > 0 && s.PodCIDR != "" && s.PodCIDRs[0] != s.PodCIDR {
		errs = append(errs, field.Invalid(at.Index(0), s.PodCIDRs[0], "must match `podCIDR`"))
	}
	for i, cidr := range s.PodCIDRs {
		errs = append(errs, validate.StoredCIDR(cidr, before, at.Index(i))...)
	}
	if len(s.PodCIDRs) < 2 {
		return errs
	}
	both, err := netutils.IsDualStackCIDRStrings(s.PodCIDRs)
	if err != nil {
		errs = append(errs, field.InternalError(at, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
	}
	if !both || len(s.PodCIDRs) > 2 {
		errs = append(errs, field.Invalid(at, s.PodCIDRs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

func validateNodeResources(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	status := field.NewPath("status")
	for name, list := range map[string]corev1.ResourceList{"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable} {
		for _, r := range slices.Sorted(maps.Keys(list)) {
			errs = append(errs, validate.ResourceValue(r, list[r], status.Child(name, string(r)))...)
		}
	}
	return errs
}

// validateNodeUpdate lets labels, annotations, taints and schedulability change. Fields that tie a
// node to its network and machine are set once.
func validateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	errs := append(validateNodeWith(n, validate.StoredIn(slices.Values(old.Spec.PodCIDRs))), validateNodeAddresses(n)...)
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(validate.SpecPath.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(validate.SpecPath.Child("providerID"), "node updates may not change providerID except from \"\" to valid"))
	}
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(validate.SpecPath.Child("externalID"), "may not be updated"))
	}
	munged := n.Spec.DeepCopy()
	munged.DoNotUseExternalID = old.Spec.DoNotUseExternalID
	munged.PodCIDR, munged.PodCIDRs, munged.ProviderID = old.Spec.PodCIDR, old.Spec.PodCIDRs, old.Spec.ProviderID
	munged.Taints, munged.Unschedulable, munged.ConfigSource = old.Spec.Taints, old.Spec.Unschedulable, old.Spec.ConfigSource
	if !validate.Equal(munged, &old.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath(""), "node updates may only change labels, taints, or capacity (or configSource, if the DynamicKubeletConfig feature gate is enabled)"))
	}
	return errs
}

func validateNodeStatus(n, _ *corev1.Node) field.ErrorList {
	return slices.Concat(validateNodeAddresses(n), validateDeclaredFeatures(n), validateNodeResources(n))
}

func validateNodeAddresses(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.NodeAddress]bool{}
	for i, a := range n.Status.Addresses {
		if seen[a] {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), a))
		}
		seen[a] = true
	}
	return errs
}

func nodeWarnings(obj, _ runtime.Object) []string {
	n := obj.(*corev1.Node)
	var out []string
	if n.Spec.DoNotUseExternalID != "" {
		out = append(out, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		out = append(out, validate.WarnCIDR(cidr, validate.SpecPath.Child("podCIDRs").Index(i))...)
	}
	return out
}

var nodeColumns = columns.Define("Name", "Status=The status of the node", "Roles=The roles of the node", "Age", "Version@status.nodeInfo.kubeletVersion",
	"+Internal-IP@status.addresses", "+External-IP@status.addresses", "+OS-Image@status.nodeInfo.osImage", "+Kernel-Version@status.nodeInfo.kernelVersion",
	"+Container-Runtime@status.nodeInfo.containerRuntimeVersion")

// kernel returns the kernel's version and the machine's architecture.
func kernel(info *corev1.NodeSystemInfo) string {
	version := cmp.Or(info.KernelVersion, columns.Unknown)
	if info.Architecture == "" {
		return version
	}
	return version + " (" + info.Architecture + ")"
}

func nodeRow(n *corev1.Node, now metav1.Time) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	address := func(kind corev1.NodeAddressType) string {
		for _, a := range n.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
		return columns.None
	}
	info := &n.Status.NodeInfo
	return []any{
		n.Name, status, columns.OrNone(strings.Join(nodeRoles(n), ",")), columns.AgeOf(n, now), info.KubeletVersion,
		address(corev1.NodeInternalIP), address(corev1.NodeExternalIP), cmp.Or(info.OSImage, columns.Unknown), kernel(info), cmp.Or(info.ContainerRuntimeVersion, columns.Unknown),
	}
}

func nodeRoles(n *corev1.Node) []string {
	var roles []string
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

package resource

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// maxDataSize limits the data of a Secret or ConfigMap, in bytes.
const maxDataSize = 1024 * 1024

const whenImmutable = "field is immutable when `immutable` is set"

func validateConfigMap(m *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		at := field.NewPath("data").Key(key)
		errs = append(errs, validate.Invalids(at, key, validation.IsConfigMapKey(key))...)
		if _, both := m.BinaryData[key]; both {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(m.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(m.BinaryData)) {
		errs = append(errs, validate.Invalids(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(m.BinaryData[key])
	}
	if size > maxDataSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxDataSize))
	}
	return errs
}

func validateConfigMapUpdate(m, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if old.Immutable != nil && *old.Immutable {
		if m.Immutable == nil || !*m.Immutable {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), whenImmutable))
		}
		if !validate.Equal(m.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), whenImmutable))
		}
		if !validate.Equal(m.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), whenImmutable))
		}
	}
	return append(errs, validateConfigMap(m)...)
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data, size := field.NewPath("data"), 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, validate.Invalids(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(s.Data[key])
	}
	if size > maxDataSize {
		errs = append(errs, field.TooLong(data, "", maxDataSize))
	}
	// wants reports missing keys that the type requires.
	wants := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
	}
	docker := func(key string) {
		value, ok := s.Data[key]
		if !ok {
			errs = append(errs, field.Required(data.Key(key), ""))
			return
		}
		if err := json.Unmarshal(value, &map[string]any{}); err != nil {
			errs = append(errs, field.Invalid(data.Key(key), "<secret contents redacted>", err.Error()))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		docker(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		docker(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			wants(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			errs = append(errs, field.Required(data.Key(corev1.SSHAuthPrivateKey), ""))
		}
	case corev1.SecretTypeTLS:
		wants(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return errs
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := validate.Immutable(s.Type, old.Type, field.NewPath("type"))
	if old.Immutable != nil && *old.Immutable {
		if s.Immutable == nil || !*s.Immutable {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), whenImmutable))
		}
		if !validate.Equal(s.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), whenImmutable))
		}
	}
	return append(errs, validateSecret(s)...)
}

func validateNamespaceStatus(n, _ *corev1.Namespace) field.ErrorList {
	at := field.NewPath("status", "Phase")
	switch {
	case n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(at, n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(at, n.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

func validateNamespaceFinalize(n, _ *corev1.Namespace) field.ErrorList { return validateNamespace(n) }

func validateNamespace(n *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	at := validate.SpecPath.Child("finalizers")
	for _, f := range n.Spec.Finalizers {
		errs = append(errs, validate.Qualified(string(f), at)...)
		if !strings.Contains(string(f), "/") && f != corev1.FinalizerKubernetes && !slices.Contains([]string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}, string(f)) {
			errs = append(errs, field.Invalid(at, f, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
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
		errs = append(errs, validateTaintEffect(t.Effect, at.Child("effect"))...)
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

func validateReplicationController(r *corev1.ReplicationController) field.ErrorList {
	errs := validateNonNegativeReplicas(r.Spec.MinReadySeconds, r.Spec.Replicas)
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(validate.SpecPath.Child("selector"), ""))
	}
	at := validate.SpecPath.Child("template")
	t := r.Spec.Template
	if t == nil {
		return append(errs, field.Required(at, ""))
	}
	if selector := labels.SelectorFromSet(r.Spec.Selector); !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(at.Child("metadata", "labels"), t.Labels, validate.Mismatch))
	}
	errs = append(errs, validatePodTemplate(t, at)...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(at.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(at.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicationController is not Supported"))
	}
	return errs
}

func validateNonNegativeReplicas(minReady int32, replicas *int32) field.ErrorList {
	errs := validate.NonNegative(int64(minReady), validate.SpecPath.Child("minReadySeconds"))
	if replicas == nil {
		return append(errs, field.Required(validate.SpecPath.Child("replicas"), ""))
	}
	return append(errs, validate.NonNegative(int64(*replicas), validate.SpecPath.Child("replicas"))...)
}

func validateReplicationControllerUpdate(r, _ *corev1.ReplicationController) field.ErrorList {
	return validateReplicationController(r)
}

func validateReplicationControllerStatus(r, _ *corev1.ReplicationController) field.ErrorList {
	s, at := r.Status, field.NewPath("status")
	var errs field.ErrorList
	for _, c := range []struct {
		name  string
		value int64
	}{
		{"replicas", int64(s.Replicas)}, {"fullyLabeledReplicas", int64(s.FullyLabeledReplicas)}, {"readyReplicas", int64(s.ReadyReplicas)},
		{"availableReplicas", int64(s.AvailableReplicas)}, {"observedGeneration", s.ObservedGeneration},
	} {
		errs = append(errs, validate.NonNegative(c.value, at.Child(c.name))...)
	}
	for _, c := range []struct {
		name  string
		value int32
	}{{"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas}} {
		if c.value > s.Replicas {
			errs = append(errs, field.Invalid(at.Child(c.name), c.value, "cannot be greater than status.replicas"))
		}
	}
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(at.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas"))
	}
	return errs
}

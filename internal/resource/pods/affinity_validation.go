package pods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func validateAffinity(a *corev1.Affinity, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		errs = append(errs, validateNodeAffinity(n, at.Child("nodeAffinity"))...)
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))...)
	}
	return errs
}

const (
	requiredTerms  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferredTerms = "preferredDuringSchedulingIgnoredDuringExecution"
	errWeight      = "must be in the range 1-100"
)

func validateNodeAffinity(n *corev1.NodeAffinity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		errs = append(errs, validate.NodeSelector(n.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(requiredTerms))...)
	}
	for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
		term, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child(preferredTerms).Index(i)
		if term.Weight <= 0 || term.Weight > 100 {
			errs = append(errs, field.Invalid(at.Child("weight"), term.Weight, errWeight))
		}
		errs = append(errs, validate.NodeTerm(&term.Preference, false, at.Child("preference"))...)
	}
	return errs
}

func validatePodTerms(requiredList []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range requiredList {
		errs = append(errs, validatePodTerm(&requiredList[i], at.Child(requiredTerms).Index(i))...)
	}
	for i := range preferred {
		at := at.Child(preferredTerms).Index(i)
		if w := preferred[i].Weight; w <= 0 || w > 100 {
			errs = append(errs, field.Invalid(at.Child("weight"), w, errWeight))
		}
		errs = append(errs, validatePodTerm(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func validatePodTerm(t *corev1.PodAffinityTerm, at *field.Path) field.ErrorList {
	errs := validate.Selector(t.LabelSelector, at.Child("labelSelector"))
	errs = append(errs, validate.Selector(t.NamespaceSelector, at.Child("namespaceSelector"))...)
	for _, namespace := range t.Namespaces {
		errs = append(errs, validate.Invalids(at.Child("namespace"), namespace, apivalidation.ValidateNamespaceName(namespace, false))...)
	}
	errs = append(errs, validateMatchKeys(t.MatchLabelKeys, t.LabelSelector, "matchLabelKeys", at)...)
	errs = append(errs, validateMatchKeys(t.MismatchLabelKeys, t.LabelSelector, "mismatchLabelKeys", at)...)
	mismatch := sets.New(t.MismatchLabelKeys...)
	for i, key := range t.MatchLabelKeys {
		if mismatch.Has(key) {
			errs = append(errs, field.Invalid(at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metavalidation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
}

// validateMatchKeys checks keys whose values come from the pod. The stored selector contains the
// merged requirement ("key in (value)"), which is not a conflict.
func validateMatchKeys(keys []string, s *metav1.LabelSelector, name string, at *field.Path) field.ErrorList {
	if len(keys) == 0 {
		return nil
	}
	if s == nil {
		return field.ErrorList{field.Forbidden(at.Child(name), "must not be specified when labelSelector is not set")}
	}
	merged := metav1.LabelSelectorOpIn
	if name == "mismatchLabelKeys" {
		merged = metav1.LabelSelectorOpNotIn
	}
	// Keys that conflict, and how often the merge may have added each key.
	selecting, count := sets.Set[string]{}, map[string]int{}
	for _, e := range s.MatchExpressions {
		if e.Operator == merged && len(e.Values) == 1 {
			count[e.Key]++
		} else {
			selecting.Insert(e.Key)
		}
	}
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, metavalidation.ValidateLabelName(key, at.Child(name).Index(i))...)
		_, labelled := s.MatchLabels[key]
		if labelled || selecting.Has(key) || count[key] > 1 {
			errs = append(errs, field.Invalid(at.Child(name).Index(i), key, fmt.Sprintf("exists in both %s and labelSelector", name)))
		}
	}
	return errs
}

// ValidateTolerations checks tolerations in settings that add them to pods or allow them.
func ValidateTolerations(tolerations []corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range tolerations {
		t, at := &tolerations[i], at.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if messages := validation.IsValidLabelValue(t.Value); len(messages) > 0 {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, strings.Join(messages, ";")))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		// TaintTolerationComparisonOperators is off.
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}))
		default:
			errs = append(errs, validate.NotSupportedUnless(t.Operator, at.Child("operator"), corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
		}
		if t.Effect != "" {
			errs = append(errs, ValidateTaintEffect(t.Effect, at.Child("effect"))...)
		}
	}
	return errs
}

func ValidateTaintEffect(effect corev1.TaintEffect, at *field.Path) field.ErrorList {
	return validate.OneOf(effect, at, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

func validateSpread(constraints []corev1.TopologySpreadConstraint, at *field.Path) field.ErrorList {
	type pairing struct {
		key  string
		when corev1.UnsatisfiableConstraintAction
	}
	last := map[pairing]int{} // the last index of each pair
	for i := range constraints {
		last[pairing{constraints[i].TopologyKey, constraints[i].WhenUnsatisfiable}] = i
	}
	var errs field.ErrorList
	for i := range constraints {
		c, at := &constraints[i], at.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, validate.NotSupportedUnless(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		pair := fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)
		if last[pairing{c.TopologyKey, c.WhenUnsatisfiable}] > i {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), pair))
		}
		if c.MinDomains != nil {
			if *c.MinDomains <= 0 {
				errs = append(errs, field.Invalid(at.Child("minDomains"), c.MinDomains, "must be greater than zero"))
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), c.MinDomains,
					fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
			}
		}
		for name, policy := range map[string]*corev1.NodeInclusionPolicy{"nodeAffinityPolicy": c.NodeAffinityPolicy, "nodeTaintsPolicy": c.NodeTaintsPolicy} {
			if policy != nil {
				errs = append(errs, validate.NotSupportedUnless(*policy, at.Child(name), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
			}
		}
		errs = append(errs, validateMatchKeys(c.MatchLabelKeys, c.LabelSelector, "matchLabelKeys", at)...)
		errs = append(errs, validate.Selector(c.LabelSelector, at.Child("labelSelector"))...)
	}
	return errs
}

package validate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func NodeSelector(s *corev1.NodeSelector, at *field.Path) field.ErrorList {
	at = at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(at, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		errs = append(errs, NodeTerm(&s.NodeSelectorTerms[i], true, at.Index(i))...)
	}
	return errs
}

// NodeTerm checks a node selector term. Only if strict does it require values that a label
// can have: a preferred term may match no node.
func NodeTerm(t *corev1.NodeSelectorTerm, strict bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range t.MatchExpressions {
		errs = append(errs, NodeExpression(&t.MatchExpressions[i], strict, at.Child("matchExpressions").Index(i))...)
	}
	for i := range t.MatchFields {
		errs = append(errs, nodeField(&t.MatchFields[i], at.Child("matchFields").Index(i))...)
	}
	return errs
}

func NodeExpression(r *corev1.NodeSelectorRequirement, strict bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metavalidation.ValidateLabelName(r.Key, at.Child("key"))...)
	if !strict {
		return errs
	}
	for i, value := range r.Values {
		errs = append(errs, Invalids(at.Child("values").Index(i), value, validation.IsValidLabelValue(value))...)
	}
	return errs
}

func nodeField(r *corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, value := range r.Values {
		errs = append(errs, Invalids(at.Child("values").Index(i), value, validation.IsDNS1123Subdomain(value))...)
	}
	return errs
}

// WarnLabelsOf warns of node labels that others have replaced; path returns the path of a label.
func WarnLabelsOf(labels map[string]string, path func(label string) *field.Path) (out []string) {
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, WarnOldLabelAt(label, path(label))...)
	}
	return out
}

// WarnOldLabelAt is WarnOldLabel for a path that contains the label.
func WarnOldLabelAt(label string, at *field.Path) []string {
	for _, old := range oldLabels {
		if old.name == label {
			return []string{fmt.Sprintf("%s: deprecated since %s; use %q instead", at, old.since, old.instead)}
		}
	}
	return nil
}

// oldLabels are node labels that others have replaced (reference of well-known labels).
var oldLabels = []struct{ name, since, instead string }{
	{corev1.LabelFailureDomainBetaZone, "v1.17", corev1.LabelTopologyZone}, {corev1.LabelFailureDomainBetaRegion, "v1.17", corev1.LabelTopologyRegion},
	{corev1.LabelInstanceType, "v1.17", corev1.LabelInstanceTypeStable}, {"beta.kubernetes.io/arch", "v1.14", corev1.LabelArchStable}, {"beta.kubernetes.io/os", "v1.14", corev1.LabelOSStable},
}

// WarnOldLabel warns of an outdated label where pods select nodes.
func WarnOldLabel(label string, at *field.Path) []string {
	for _, old := range oldLabels {
		if old.name == label {
			return []string{fmt.Sprintf("%s: %s is deprecated since %s; use %q instead", at, label, old.since, old.instead)}
		}
	}
	return nil
}

func AnnotationPath(name string) string {
	return field.NewPath("metadata", "annotations").Key(name).String()
}

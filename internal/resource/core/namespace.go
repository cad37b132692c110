// Package core holds the kinds of the core group, and Event in its two groups. Pods have a package
// of their own (pods). Volumes and their claims are in storage.
package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func NamespaceStrategy() *strategy.Strategy {
	s := &strategy.Strategy{
		AllowUnconditionalUpdate: true,
		Default:                  strategy.On(defaultNamespace),
		PrepareCreate: strategy.On(func(ns *corev1.Namespace) {
			defaultNamespace(ns) // generateName may have made the name after the first defaulting
			ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
				ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
			}
		}),
		PrepareUpdate: strategy.OnBoth(func(ns, old *corev1.Namespace) {
			ns.Spec.Finalizers = slices.Clone(old.Spec.Finalizers)
			ns.Status = *old.Status.DeepCopy()
		}),
		PrepareStatus: strategy.OnBoth(func(ns, old *corev1.Namespace) { ns.Spec.Finalizers = slices.Clone(old.Spec.Finalizers) }),
		Subresource: map[string]strategy.UpdateStrategy{
			"finalize": {
				Prepare:  strategy.OnBoth(func(ns, old *corev1.Namespace) { ns.Status = *old.Status.DeepCopy() }),
				Validate: strategy.ChecksBoth(validateNamespaceFinalize),
			},
		},
		ValidateCreate: strategy.Checks(validateNamespace),
		ValidateStatus: strategy.ChecksBoth(validateNamespaceStatus),
		ValidateName:   apivalidation.ValidateNamespaceName,
		FieldNames:     []string{"status.phase"},
		FieldAliases:   map[string]string{"name": "metadata.name"},
		Fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"status.phase": string(obj.(*corev1.Namespace).Status.Phase)}
		},
	}
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), namespaceColumns, namespaceRow)
}

func defaultNamespace(ns *corev1.Namespace) {
	// The label lets selectors find a namespace by its name. With generateName there is no name
	// yet: then PrepareCreate sets the label.
	if ns.Name != "" && ns.Labels[corev1.LabelMetadataName] != ns.Name {
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[corev1.LabelMetadataName] = ns.Name
	}
	strategy.SetDefault(&ns.Status.Phase, corev1.NamespaceActive)
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

var namespaceColumns = columns.Define("Name", "Status=The status of the namespace", "Age")

func namespaceRow(n *corev1.Namespace, now metav1.Time) []any {
	return []any{n.Name, string(n.Status.Phase), columns.AgeOf(n, now)}
}

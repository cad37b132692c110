// Package node holds RuntimeClass, the kind of node.k8s.io. The kind Node is in core.
package node

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func RuntimeClassStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.AllowCreateOnUpdate = true
	s.Warnings = strategy.Warns(warnRuntimeClass)
	s.ValidateCreate = strategy.Checks(validateRuntimeClass)
	s.ValidateUpdate = strategy.ChecksBoth(validateRuntimeClassUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(strategy.WithLooseFinalizers(s)), runtimeClassColumns, runtimeClassRow)
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	at := field.NewPath("handler")
	var errs field.ErrorList
	if c.Handler == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validate.Label(c.Handler, at)...)
	}
	if c.Overhead != nil {
		for name, q := range c.Overhead.PodFixed {
			at := field.NewPath("overhead", "limits").Key(string(name))
			errs = append(errs, validate.ContainerResourceName(name, at)...)
			errs = append(errs, validate.ResourceValue(name, q, at)...)
		}
	}
	if s := c.Scheduling; s != nil {
		at := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, validateClassTolerations(s.Tolerations, at.Child("tolerations"))...)
	}
	return errs
}

// validateClassTolerations checks tolerations that are added to pods; they must be unique.
func validateClassTolerations(tolerations []corev1.Toleration, at *field.Path) field.ErrorList {
	errs := pods.ValidateTolerations(tolerations, at)
	type whole struct {
		toleration corev1.Toleration // without its seconds
		seconds    int64
		ends       bool
	}
	seen := sets.Set[whole]{}
	for i, t := range tolerations {
		w := whole{t, validate.Deref(t.TolerationSeconds), t.TolerationSeconds != nil}
		w.toleration.TolerationSeconds = nil
		if seen.Has(w) {
			errs = append(errs, field.Duplicate(at.Index(i), t))
		}
		seen.Insert(w)
	}
	return errs
}

func validateRuntimeClassUpdate(c, old *nodev1.RuntimeClass) field.ErrorList {
	errs := validateRuntimeClass(c)
	return append(errs, validate.Immutable(c.Handler, old.Handler, field.NewPath("handler"))...)
}

func warnRuntimeClass(c *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	return validate.WarnLabelsOf(c.Scheduling.NodeSelector, func(string) *field.Path { return field.NewPath("scheduling", "nodeSelector") })
}

var runtimeClassColumns = columns.Define("Name", "Handler=", "Age")

func runtimeClassRow(c *nodev1.RuntimeClass, now metav1.Time) []any {
	return []any{c.Name, c.Handler, columns.AgeOf(c, now)}
}

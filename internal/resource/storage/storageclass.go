// Package storage holds the kinds of storage.k8s.io, and PersistentVolume and PersistentVolumeClaim
// of the core group. Pods share the volume sources in source.go.
package storage

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func StorageClassStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultStorageClass)
	s.Warnings = strategy.Warns(warnStorageClass)
	s.ValidateCreate = strategy.Checks(validateStorageClass)
	s.ValidateUpdate = strategy.ChecksBoth(validateStorageClassUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), storageClassColumns, storageClassRow)
}

func defaultStorageClass(c *storagev1.StorageClass) {
	strategy.SetPointer(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	strategy.SetPointer(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

const (
	maxClassParameters     = 512
	maxClassParametersSize = 256 * (1 << 10)
)

func validateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(c.Parameters, true, field.NewPath("parameters"))...)
	if p := c.ReclaimPolicy; p != nil && *p != "" {
		errs = append(errs, validate.NotSupportedUnless(*p, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	if m := c.VolumeBindingMode; m == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	} else {
		errs = append(errs, validate.NotSupportedUnless(*m, field.NewPath("volumeBindingMode"), storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

func validateStorageClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	var errs field.ErrorList
	if len(c.Parameters)+len(old.Parameters) > 0 {
		errs = append(errs, validate.Immutable(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	}
	errs = append(errs, validate.Immutable(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, validate.Immutable(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	errs = append(errs, validate.Immutable(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
	return append(errs, validateStorageClass(c)...)
}

func validateProvisioner(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, name)}
	}
	return validate.Qualified(strings.ToLower(name), at)
}

func validateParameters(parameters map[string]string, allowEmpty bool, at *field.Path) field.ErrorList {
	if !allowEmpty && len(parameters) == 0 {
		return field.ErrorList{field.Required(at, "must contain at least one key/value pair")}
	}
	var errs field.ErrorList
	if len(parameters) > maxClassParameters {
		errs = append(errs, field.TooLong(at, "", maxClassParameters))
	}
	size := 0
	for k, v := range parameters {
		if k == "" {
			errs = append(errs, field.Invalid(at, k, "field can not be empty."))
		}
		size += len(k) + len(v)
	}
	if size > maxClassParametersSize {
		errs = append(errs, field.TooLong(at, "", maxClassParametersSize))
	}
	return errs
}

// validateTopologies checks terms (joined by OR) of expressions (joined by AND). Terms must differ.
func validateTopologies(terms []corev1.TopologySelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	// The set already contains the empty term.
	seen := map[string]bool{fmt.Sprint(map[string][]string{}): true}
	for i, term := range terms {
		expressions := at.Index(i).Child("matchLabelExpressions")
		keys := map[string]bool{}
		form := map[string][]string{}
		for j, e := range term.MatchLabelExpressions {
			at := expressions.Index(j)
			values := sets.New[string]()
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			for k, v := range e.Values {
				if values.Has(v) {
					errs = append(errs, field.Duplicate(at.Child("values").Index(k), v))
				}
				values.Insert(v)
			}
			errs = append(errs, validate.Invalids(at.Child("key"), e.Key, validation.IsQualifiedName(e.Key))...)
			if keys[e.Key] {
				errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			}
			keys[e.Key] = true
			form[e.Key] = sets.List(values)
		}
		text := fmt.Sprint(form)
		if seen[text] {
			errs = append(errs, field.Duplicate(expressions, ""))
		}
		seen[text] = true
	}
	return errs
}

func warnStorageClass(c *storagev1.StorageClass) (out []string) {
	for i, t := range c.AllowedTopologies {
		for j, e := range t.MatchLabelExpressions {
			out = append(out, validate.WarnOldLabelAt(e.Key, field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"))...)
		}
	}
	return out
}

const (
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

var storageClassColumns = columns.Define("Name", "Provisioner@provisioner", "ReclaimPolicy@reclaimPolicy", "VolumeBindingMode@volumeBindingMode", "AllowVolumeExpansion@allowVolumeExpansion", "Age")

func storageClassRow(c *storagev1.StorageClass, now metav1.Time) []any {
	name := c.Name
	if c.Annotations[defaultClassAnnotation] == "true" || c.Annotations[betaDefaultClassAnnotation] == "true" {
		name += " (default)"
	}
	policy, mode := string(corev1.PersistentVolumeReclaimDelete), columns.Unset
	if c.ReclaimPolicy != nil {
		policy = string(*c.ReclaimPolicy)
	}
	if c.VolumeBindingMode != nil {
		mode = string(*c.VolumeBindingMode)
	}
	return []any{name, c.Provisioner, policy, mode, validate.Deref(c.AllowVolumeExpansion), columns.AgeOf(c, now)}
}

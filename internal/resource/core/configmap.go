package core

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ConfigMapStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.ValidateCreate = strategy.Checks(validateConfigMap)
	s.ValidateUpdate = strategy.ChecksBoth(validateConfigMapUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), configMapColumns, configMapRow)
}

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

var configMapColumns = columns.Define("Name", "Data@data", "Age")

func configMapRow(c *corev1.ConfigMap, now metav1.Time) []any {
	return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), columns.AgeOf(c, now)}
}

package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func VolumeAttributesStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.ValidateCreate = strategy.Checks(validateVolumeAttributes)
	s.ValidateUpdate = strategy.ChecksBoth(validateVolumeAttributesUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), volumeAttributesColumns, volumeAttributesRow)
}

func validateVolumeAttributes(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validateProvisioner(c.DriverName, field.NewPath("driverName"))
	return append(errs, validateParameters(c.Parameters, false, field.NewPath("parameters"))...)
}

func validateVolumeAttributesUpdate(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !validate.Equal(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return append(errs, validateVolumeAttributes(c)...)
}

const defaultVACAnnotation = "volumeattributesclass.alpha.kubernetes.io/is-default-class"

var volumeAttributesColumns = columns.Define("Name", "DriverName@driverName", "Age")

func volumeAttributesRow(c *storagev1.VolumeAttributesClass, now metav1.Time) []any {
	name := c.Name
	if c.Annotations[defaultVACAnnotation] == "true" {
		name += " (default)"
	}
	return []any{name, c.DriverName, columns.AgeOf(c, now)}
}

package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func CSIStorageCapacityStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.Warnings = strategy.Warns(warnCSIStorageCapacity)
	s.ValidateCreate = strategy.Checks(validateCSIStorageCapacity)
	s.ValidateUpdate = strategy.ChecksBoth(validateCSIStorageCapacityUpdate)
	return strategy.ShowAny(strategy.WithNameRuleOnUpdate(s), columns.Created, columns.CreatedRow)
}

func validateCSIStorageCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := validate.Invalids(field.NewPath("storageClassName"), c.StorageClassName, apivalidation.NameIsDNSSubdomain(c.StorageClassName, false))
	if c.NodeTopology != nil {
		errs = append(errs, validate.Selector(c.NodeTopology, field.NewPath("nodeTopology"))...)
	}
	if c.Capacity != nil {
		errs = append(errs, validate.Quantity(*c.Capacity, field.NewPath("capacity"))...)
	}
	return errs
}

func validateCSIStorageCapacityUpdate(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := validateCSIStorageCapacity(c)
	errs = append(errs, validate.Immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...)
	return append(errs, validate.Immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
}

func warnCSIStorageCapacity(c *storagev1.CSIStorageCapacity) (out []string) {
	if c.NodeTopology == nil {
		return nil
	}
	at := field.NewPath("nodeTopology")
	for i, e := range c.NodeTopology.MatchExpressions {
		out = append(out, validate.WarnOldLabel(e.Key, at.Child("matchExpressions").Index(i).Child("key"))...)
	}
	return append(out, validate.WarnLabelsOf(c.NodeTopology.MatchLabels, func(label string) *field.Path { return at.Child("matchLabels").Child(label) })...)
}

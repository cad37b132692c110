package storage

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func CSINodeStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.ValidateCreate = strategy.Checks(validateCSINode)
	s.ValidateUpdate = strategy.ChecksBoth(validateCSINodeUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), csiNodeColumns, csiNodeRow)
}

const maxCSINodeIDLength = 256

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	drivers := validate.SpecPath.Child("drivers")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range n.Spec.Drivers {
		d, at := &n.Spec.Drivers[i], drivers.Index(i)
		errs = append(errs, ValidateDriverName(d.Name, at.Child("name"))...)
		switch {
		case d.NodeID == "":
			errs = append(errs, field.Required(at.Child("nodeID"), d.NodeID))
		case len(d.NodeID) > maxCSINodeIDLength:
			errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxCSINodeIDLength)))
		}
		if d.Allocatable != nil {
			errs = append(errs, validate.OptionalNonNegative(d.Allocatable.Count, at.Child("allocatable", "count"))...)
		}
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		seen[d.Name] = true
		keys := map[string]bool{}
		for _, k := range d.TopologyKeys {
			switch {
			case k == "":
				errs = append(errs, field.Required(at, ""))
			case keys[k]:
				errs = append(errs, field.Duplicate(at, k))
			}
			keys[k] = true
			errs = append(errs, validate.Qualified(k, at)...)
		}
	}
	return errs
}

// validateCSINodeUpdate keeps what a driver reported, except how many volumes it can attach.
func validateCSINodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs := validateCSINode(n)
	before := map[string]storagev1.CSINodeDriver{}
	for _, d := range old.Spec.Drivers {
		before[d.Name] = d
	}
	for _, d := range n.Spec.Drivers {
		was, ok := before[d.Name]
		if !ok {
			continue
		}
		d.Allocatable = was.Allocatable
		if !validate.Equal(d, was) {
			errs = append(errs, field.Invalid(validate.SpecPath.Child("drivers"), d, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return errs
}

var csiNodeColumns = columns.Define("Name", "Drivers:integer=Drivers indicates the number of CSI drivers registered on the node", "Age")

func csiNodeRow(n *storagev1.CSINode, now metav1.Time) []any {
	return []any{n.Name, int64(len(n.Spec.Drivers)), columns.AgeOf(n, now)}
}

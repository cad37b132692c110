package storage

import (
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func CSIDriverStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.Default = strategy.On(defaultCSIDriver)
	s.PrepareUpdate = strategy.OnBoth(func(d, old *storagev1.CSIDriver) {
		strategy.SetGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec))
	})
	s.DropFields(func(obj, old runtime.Object) {
		// The feature behind CSIDriver's preventPodSchedulingIfMissing is off (KEP-5030).
		if old == nil || old.(*storagev1.CSIDriver).Spec.PreventPodSchedulingIfMissing == nil {
			obj.(*storagev1.CSIDriver).Spec.PreventPodSchedulingIfMissing = nil
		}
	})
	s.Warnings = func(obj, old runtime.Object) []string {
		d := obj.(*storagev1.CSIDriver)
		if old != nil && apiequality.Semantic.DeepEqual(d.Spec.TokenRequests, old.(*storagev1.CSIDriver).Spec.TokenRequests) {
			return nil // the kind's validation reports it
		}
		if len(d.Spec.TokenRequests) > 0 && d.Spec.ServiceAccountTokenInSecrets == nil {
			return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
		}
		return nil
	}
	s.ValidateCreate = strategy.Checks(validateCSIDriver)
	s.ValidateUpdate = strategy.ChecksBoth(validateCSIDriverUpdate)
	return strategy.Show(s, csiDriverColumns, csiDriverRow)
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	strategy.SetPointer(&d.Spec.AttachRequired, true)
	strategy.SetPointer(&d.Spec.PodInfoOnMount, false)
	strategy.SetPointer(&d.Spec.StorageCapacity, false)
	strategy.SetPointer(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	strategy.SetPointer(&d.Spec.RequiresRepublish, false)
	strategy.SetPointer(&d.Spec.SELinuxMount, false)
}

const (
	maxCSIDriverNameLength      = 63
	minTokenDurationSeconds     = 600
	maxTokenDurationSeconds     = 1 << 32
	minAllocatableUpdateSeconds = 10
)

func ValidateDriverName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > maxCSIDriverNameLength {
		errs = append(errs, field.TooLong(at, name, maxCSIDriverNameLength))
	}
	return append(errs, validate.Invalids(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func validateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	var errs field.ErrorList
	spec := &d.Spec
	for _, b := range []struct {
		name  string
		value *bool
	}{{"attachRequired", spec.AttachRequired}, {"podInfoOnMount", spec.PodInfoOnMount}, {"storageCapacity", spec.StorageCapacity}} {
		if b.value == nil {
			errs = append(errs, field.Required(validate.SpecPath.Child(b.name), ""))
		}
	}
	if p := spec.FSGroupPolicy; p == nil {
		errs = append(errs, field.Required(validate.SpecPath.Child("fsGroupPolicy"), ""))
	} else {
		errs = append(errs, validate.NotSupportedUnless(*p, validate.SpecPath.Child("fsGroupPolicy"),
			storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	audiences := map[string]bool{}
	for i, t := range spec.TokenRequests {
		at := validate.SpecPath.Child("tokenRequests").Index(i)
		if audiences[t.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), t.Audience))
			continue
		}
		audiences[t.Audience] = true
		if s := t.ExpirationSeconds; s != nil {
			if *s < minTokenDurationSeconds {
				errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
			}
			if *s > maxTokenDurationSeconds {
				errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
			}
		}
	}
	for _, m := range spec.VolumeLifecycleModes {
		if m != storagev1.VolumeLifecyclePersistent && m != storagev1.VolumeLifecycleEphemeral {
			errs = append(errs, field.NotSupported(validate.SpecPath.Child("volumeLifecycleModes"), m, []string{"Persistent", "Ephemeral"}))
		}
	}
	if spec.SELinuxMount == nil {
		errs = append(errs, field.Required(validate.SpecPath.Child("seLinuxMount"), ""))
	}
	if spec.ServiceAccountTokenInSecrets != nil && len(spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("serviceAccountTokenInSecrets"), *spec.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	if s := spec.NodeAllocatableUpdatePeriodSeconds; s != nil && *s < minAllocatableUpdateSeconds {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("nodeAllocatableUpdatePeriodSeconds"), *s, fmt.Sprintf("must be greater than or equal to %d seconds", minAllocatableUpdateSeconds)))
	}
	return errs
}

func validateCSIDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	errs := validateCSIDriver(d)
	// Upstream's spelling of the path.
	errs = append(errs, validate.Immutable(d.Spec.AttachRequired, old.Spec.AttachRequired, validate.SpecPath.Child("attachedRequired"))...)
	return append(errs, validate.Immutable(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, validate.SpecPath.Child("volumeLifecycleModes"))...)
}

var csiDriverColumns = columns.Define("Name", "AttachRequired:boolean@spec.attachRequired", "PodInfoOnMount:boolean@spec.podInfoOnMount", "StorageCapacity:boolean@spec.storageCapacity",
	"TokenRequests@spec.tokenRequests", "RequiresRepublish:boolean@spec.requiresRepublish", "Modes@spec.volumeLifecycleModes", "Age")

func csiDriverRow(d *storagev1.CSIDriver, now metav1.Time) []any {
	var modes, tokens []string
	for _, m := range d.Spec.VolumeLifecycleModes {
		modes = append(modes, string(m))
	}
	for _, t := range d.Spec.TokenRequests {
		tokens = append(tokens, t.Audience)
	}
	audiences := columns.Unset
	if len(tokens) > 0 {
		audiences = strings.Join(tokens, ",")
	}
	attach := d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
	return []any{
		d.Name, attach, validate.Deref(d.Spec.PodInfoOnMount), validate.Deref(d.Spec.StorageCapacity), audiences, validate.Deref(d.Spec.RequiresRepublish),
		columns.OrNone(strings.Join(modes, ",")), columns.AgeOf(d, now),
	}
}

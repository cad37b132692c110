package resource

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateMeta holds an object's metadata on creation to the rules common to all kinds.
func (s *Strategy) ValidateMeta(obj metav1.Object, namespaced bool) field.ErrorList {
	return apivalidation.ValidateObjectMetaAccessor(obj, namespaced, s.validateName(), field.NewPath("metadata"))
}

// ValidateMetaUpdate holds an object's metadata on update to the rules common to all kinds, old being the state before.
func (s *Strategy) ValidateMetaUpdate(obj, old metav1.Object, namespaced bool) field.ErrorList {
	path := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, path)
	if len(errs) > 0 {
		return errs
	}
	// The name was valid when the object was created; the rest is checked again.
	anyName := func(string, bool) []string { return nil }
	return apivalidation.ValidateObjectMetaAccessor(obj, namespaced, anyName, path)
}

func (s *Strategy) validateName() apivalidation.ValidateNameFunc {
	if s.ValidateName != nil {
		return s.ValidateName
	}
	return apivalidation.NameIsDNSSubdomain
}

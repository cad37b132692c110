package strategy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// PathSegment accepts any name that fits into one segment of a URL path, such as RBAC's
// "system:node".
func PathSegment(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

// ValidateMeta checks a new object's metadata against the rules that all kinds share.
func (s *Strategy) ValidateMeta(obj metav1.Object, namespaced bool) field.ErrorList {
	path := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(obj, namespaced, s.validateName(), path)
	return append(errs, s.validateFinalizers(obj, path)...)
}

// ValidateNew checks a new object against the rules that all kinds share and against those of its
// kind.
func (s *Strategy) ValidateNew(obj runtime.Object, namespaced bool) field.ErrorList {
	meta := obj.(metav1.Object)
	var errs field.ErrorList
	if !s.LateMeta {
		errs = s.ValidateMeta(meta, namespaced)
	}
	if s.ValidateCreate != nil {
		errs = append(errs, s.ValidateCreate(obj)...)
	}
	if s.LateMeta && len(errs) == 0 {
		errs = s.ValidateMeta(meta, namespaced)
	}
	if len(errs) == 0 && s.ValidateName != nil { // the minimum for every name
		errs = apivalidation.ValidateObjectMetaAccessor(meta, namespaced, PathSegment, field.NewPath("metadata"))
	}
	return errs
}

// standardFinalizers need no domain prefix.
var standardFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

func (s *Strategy) validateFinalizers(obj metav1.Object, path *field.Path) (errs field.ErrorList) {
	if s.LooseFinalizers {
		return nil
	}
	for i, name := range obj.GetFinalizers() {
		if !strings.Contains(name, "/") && !slices.Contains(standardFinalizers, name) {
			errs = append(errs, field.Invalid(path.Child("finalizers").Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// ValidateMetaUpdate checks an object's metadata in an update of the object or a subresource
// against the rules that all kinds share. old is the stored object.
func (s *Strategy) ValidateMetaUpdate(obj, old metav1.Object, namespaced bool, subresource string) field.ErrorList {
	path := field.NewPath("metadata")
	// The name was valid on create. generateName and the rest are checked again.
	errs := apivalidation.ValidateObjectMetaAccessor(obj, namespaced, PathSegment, path)
	changed := apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, path)
	// Upstream checks twice and reports each cause twice.
	errs = append(append(errs, changed...), changed...)
	if base := obj.GetGenerateName(); base != "" && (s.NameRuleOnUpdate && subresource == "" || s.NameRuleOnStatus && subresource == "status") {
		errs = append(errs, validate.Invalids(path.Child("generateName"), base, s.validateName()(base, true))...)
	}
	return append(errs, s.validateFinalizers(obj, path)...)
}

// FinalizerWarnings warns of new finalizers of a custom resource whose names others might choose as
// well.
func FinalizerWarnings(obj, old metav1.Object) []string {
	var out []string
	before := sets.Set[string]{}
	if old != nil {
		before.Insert(old.GetFinalizers()...)
	}
	for _, name := range obj.GetFinalizers() {
		if strings.Contains(name, "/") || slices.Contains(standardFinalizers, name) || before.Has(name) {
			continue
		}
		path := ""
		if strings.Contains(name, ".") {
			path = " including a path (/)"
		}
		out = append(out, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers", name, path))
	}
	slices.Sort(out)
	return out
}

func (s *Strategy) validateName() apivalidation.ValidateNameFunc {
	if s.ValidateName != nil {
		return s.ValidateName
	}
	return apivalidation.NameIsDNSSubdomain
}

// DeclaredSubdomain checks the names of kinds whose Go type declares the rule. It is the common
// rule (a DNS subdomain) with another message.
func DeclaredSubdomain(name string, prefix bool) []string {
	if prefix {
		return PathSegment(name, prefix)
	}
	return content.IsDNS1123Subdomain(name)
}

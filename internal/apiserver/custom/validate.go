package custom

import (
	"context"
	"math"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// validate validates a new object. It skips the common rules of metadata and the schema for an
// object of another kind, but not the rest.
func (v *Version) validate(u *unstructured.Unstructured) field.ErrorList {
	errs := v.validateType(u)
	s, schema, err := v.compiledSchemas(v.compiled.Get().schema)
	if err != nil {
		return append(errs, field.InternalError(nil, err))
	}
	if wrong := tooManyErrors(nil, u.Object, nil, schema); wrong != nil {
		return append(errs, wrong...)
	}
	if len(errs) == 0 {
		errs = apivalidation.ValidateObjectMetaAccessor(u, v.def.namespaced(), apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
		errs = append(errs, validation.ValidateCustomResource(nil, u.Object, schema)...)
		errs = append(errs, v.validateScale(u)...)
	}
	if s == nil {
		return errs
	}
	errs = append(errs, objectmeta.Validate(nil, u.Object, s, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s, u.Object)...)
	return append(errs, v.validateRules(u, nil, errs)...)
}

// validateUpdate validates a changed object. Unchanged errors are allowed (ratcheting, KEP-4008).
func (v *Version) validateUpdate(u, old *unstructured.Unstructured) field.ErrorList {
	errs := v.validateType(u)
	s, schema, err := v.compiledSchemas(v.compiled.Get().schema)
	if err != nil {
		return append(errs, field.InternalError(nil, err))
	}
	if wrong := tooManyErrors(nil, u.Object, old.Object, schema); wrong != nil {
		return append(errs, wrong...)
	}
	if s == nil {
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u.Object, old.Object, schema)...)
		return append(errs, v.validateScale(u)...)
	}
	both := correlated(u, old, s)
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u.Object, old.Object, schema, validation.WithRatcheting(both))...)
	return append(errs, v.validateRest(u, old, s, errs, both)...)
}

// compiledSchemas returns the version's structural schema, nil if there is none, and the schema
// validator for the whole object or its status.
func (v *Version) compiledSchemas(schema func() (validation.SchemaValidator, error)) (*structuralschema.Structural, validation.SchemaValidator, error) {
	s, err := v.structure()
	if err != nil {
		return nil, nil, err
	}
	validator, err := schema()
	return s, validator, err
}

func correlated(u, old *unstructured.Unstructured, s *structuralschema.Structural) *common.CorrelatedObject {
	return common.NewCorrelatedObject(u.Object, old.Object, &model.Structural{Structural: s})
}

// validateStatus validates a change through the status subresource: only the status must satisfy
// its schema.
func (v *Version) validateStatus(u, old *unstructured.Unstructured) field.ErrorList {
	errs := v.validateType(u)
	s, schema, err := v.compiledSchemas(v.compiled.Get().status)
	if err != nil {
		return append(errs, field.InternalError(nil, err))
	}
	if status, ok := u.Object["status"]; ok && schema != nil {
		if wrong := tooManyErrors(field.NewPath("status"), status, old.Object["status"], schema); wrong != nil {
			return append(errs, wrong...)
		}
		var opts []validation.ValidationOption
		if s != nil {
			if both := correlated(u, old, s).Key("status"); both != nil {
				opts = append(opts, validation.WithRatcheting(both))
			}
		}
		errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old.Object["status"], schema, opts...)...)
	}
	if s == nil {
		return append(errs, v.validateScale(u)...)
	}
	return append(errs, v.validateRest(u, old, s, errs, correlated(u, old, s))...)
}

// validateRest validates what the schema does not express itself. found has the errors so far.
func (v *Version) validateRest(u, old *unstructured.Unstructured, s *structuralschema.Structural, found field.ErrorList, both *common.CorrelatedObject) field.ErrorList {
	errs := v.validateScale(u)
	errs = append(errs, objectmeta.Validate(nil, u.Object, s, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, s, old.Object)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s, u.Object)...)
	}
	return append(errs, v.validateRules(u, old, append(found, errs...), cel.WithRatcheting(both))...)
}

func (v *Version) validateType(u *unstructured.Unstructured) (errs field.ErrorList) {
	want := v.GVK()
	if kind := u.GetKind(); kind != want.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, "must be "+want.Kind))
	}
	if version := u.GetAPIVersion(); version != want.GroupVersion().String() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), version, "must be "+want.GroupVersion().String()))
	}
	return errs
}

// blocking has the types of errors after which a value may break the assumptions of expressions.
var blocking = []field.ErrorType{
	field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
}

// validateRules evaluates x-kubernetes-validations, unless errors of the schema may break their
// assumptions.
func (v *Version) validateRules(u, old *unstructured.Unstructured, found field.ErrorList, opts ...cel.Option) field.ErrorList {
	rules, err := v.compiled.Get().rules()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if rules == nil {
		return nil
	}
	var before any
	if old != nil {
		before = old.Object
		// These errors only block the rules: the caller reports them.
		found = append(found, apivalidation.ValidateObjectMetaAccessorUpdate(u, old, field.NewPath("metadata"))...)
	}
	if slices.ContainsFunc(found, func(e *field.Error) bool { return slices.Contains(blocking, e.Type) }) {
		return field.ErrorList{field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
	}
	s, _ := v.structure() // it exists, since there are rules
	errs, _ := rules.Validate(context.Background(), nil, s, u.Object, before, celconfig.RuntimeCELCostBudget, opts...)
	return errs
}

// validateScale checks that a Scale can represent the object's replicas and selector.
func (v *Version) validateScale(u *unstructured.Unstructured) (errs field.ErrorList) {
	if v.spec.Subresources == nil || v.spec.Subresources.Scale == nil {
		return nil
	}
	scale := v.spec.Subresources.Scale
	for _, path := range []string{scale.SpecReplicasPath, scale.StatusReplicasPath} {
		name := field.NewPath(path)
		replicas, _, err := unstructured.NestedInt64(u.Object, pathParts(path)...)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(name, replicas, err.Error()))
		case replicas < 0:
			errs = append(errs, field.Invalid(name, replicas, "should be a non-negative integer"))
		case replicas > math.MaxInt32:
			errs = append(errs, field.Invalid(name, replicas, "should be less than or equal to 2147483647"))
		}
	}
	if path := scale.LabelSelectorPath; path != nil && *path != "" {
		if selector, _, err := unstructured.NestedString(u.Object, pathParts(*path)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*path), selector, err.Error()))
		}
	}
	return errs
}

package custom

import (
	"cmp"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Version is one version of a custom kind. Safe for concurrent use. It compiles its schema at the
// first use and keeps the results while they are in use.
type Version struct {
	def      *Definition
	spec     *apiextensionsv1.CustomResourceDefinitionVersion
	printer  func() *printer
	compiled *Kept[*forms]
}

// forms are compiled from a version's schema.
type forms struct {
	structure func() (*structuralschema.Structural, error)
	schema    func() (validation.SchemaValidator, error)
	// status is for the status alone; nil if it has no schema.
	status func() (validation.SchemaValidator, error)
	rules  func() (*cel.Validator, error)
}

func newVersion(d *Definition, spec *apiextensionsv1.CustomResourceDefinitionVersion) *Version {
	v := &Version{def: d, spec: spec}
	v.printer = sync.OnceValue(func() *printer { return newPrinter(spec.AdditionalPrinterColumns) })
	v.compiled = NewKept(func() *forms {
		f := &forms{structure: sync.OnceValues(v.makeStructure), schema: sync.OnceValues(v.makeSchema), status: sync.OnceValues(v.makeStatusSchema)}
		f.rules = sync.OnceValues(func() (*cel.Validator, error) { return makeRules(f.structure()) })
		return f
	})
	return v
}

func (v *Version) structure() (*structuralschema.Structural, error) {
	return v.compiled.Get().structure()
}

// GVK returns the kind in this version.
func (v *Version) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: v.def.CRD.Spec.Group, Version: v.spec.Name, Kind: v.def.kind()}
}

// ListKind returns the kind of lists in this version.
func (v *Version) ListKind() schema.GroupVersionKind {
	return v.GVK().GroupVersion().WithKind(v.def.listKind())
}

// Definition returns the version's definition.
func (v *Version) Definition() *Definition { return v.def }

// New returns an empty object.
func (v *Version) New() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v.GVK())
	return u
}

// DeprecationWarning returns the warning for users of a deprecated version, else "".
func (v *Version) DeprecationWarning() string {
	switch {
	case !v.spec.Deprecated:
		return ""
	case v.spec.DeprecationWarning != nil:
		return *v.spec.DeprecationWarning
	}
	warning := fmt.Sprintf("%s/%s %s is deprecated", v.def.CRD.Spec.Group, v.spec.Name, v.def.kind())
	if instead := v.successor(); instead != "" {
		warning += fmt.Sprintf("; use %s/%s %s", v.def.CRD.Spec.Group, instead, v.def.kind())
	}
	return warning
}

// successor returns the newest served version that is not deprecated and at least as stable; "" if
// there is none.
func (v *Version) successor() (newest string) {
	for i := range v.def.CRD.Spec.Versions {
		other := &v.def.CRD.Spec.Versions[i]
		if other.Served && !other.Deprecated && version.CompareKubeAwareVersionStrings(other.Name, cmp.Or(newest, v.spec.Name)) > 0 {
			newest = other.Name
		}
	}
	return newest
}

// preserves reports whether unknown fields are kept everywhere. It holds for some definitions from
// before v1.
func (v *Version) preserves() bool { return v.def.CRD.Spec.PreserveUnknownFields }

// HasStatus reports whether the version has the status subresource.
func (v *Version) HasStatus() bool {
	return v.spec.Subresources != nil && v.spec.Subresources.Status != nil
}

// internalSchema returns the schema in the type of the schema library; nil if there is none.
func (v *Version) internalSchema() (*apiextensions.JSONSchemaProps, error) {
	crd, err := v.def.whole()
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", v.GVK(), err)
	}
	return schemaOf(crd, v.spec.Name)
}

func schemaOf(crd *apiextensionsv1.CustomResourceDefinition, version string) (*apiextensions.JSONSchemaProps, error) {
	for i := range crd.Spec.Versions {
		spec := &crd.Spec.Versions[i]
		if spec.Name != version || spec.Schema == nil || spec.Schema.OpenAPIV3Schema == nil {
			continue
		}
		out := &apiextensions.JSONSchemaProps{}
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(spec.Schema.OpenAPIV3Schema, out, nil)
		if err != nil {
			return nil, fmt.Errorf("schema of %s %s: %w", crd.Name, version, err)
		}
		return out, nil
	}
	return nil, nil
}

// makeStructure returns nil for a version that has no structural schema and needs none.
func (v *Version) makeStructure() (*structuralschema.Structural, error) {
	props, err := v.internalSchema()
	if err != nil || props == nil {
		return nil, err
	}
	s, err := structuralschema.NewStructural(props)
	switch {
	case err != nil && v.preserves():
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the schema of %s is not structural: %w", v.GVK(), err)
	}
	// Embedded objects' metadata has ObjectMeta's fields only.
	if err := defaulting.PruneDefaults(s); err != nil {
		return nil, fmt.Errorf("defaults of %s: %w", v.GVK(), err)
	}
	return s, nil
}

func (v *Version) makeSchema() (validation.SchemaValidator, error) {
	props, err := v.internalSchema()
	if err != nil {
		return nil, err
	}
	validator, openapi, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", v.GVK(), err)
	}
	return &checked{validator, openapi}, nil
}

func (v *Version) makeStatusSchema() (validation.SchemaValidator, error) {
	props, err := v.internalSchema()
	if err != nil || props == nil {
		return nil, err
	}
	status, ok := props.Properties["status"]
	if !ok {
		return nil, nil
	}
	validator, openapi, err := validation.NewSchemaValidator(&status)
	if err != nil {
		return nil, fmt.Errorf("schema of the status of %s: %w", v.GVK(), err)
	}
	return &checked{validator, openapi}, nil
}

// makeRules compiles x-kubernetes-validations; nil if there are none.
func makeRules(s *structuralschema.Structural, err error) (*cel.Validator, error) {
	if err != nil || s == nil {
		return nil, err
	}
	return cel.NewValidator(s, true, celconfig.PerCallLimit), nil
}

package custom

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/managedfields"
	kubespec "k8s.io/kube-openapi/pkg/validation/spec"

	structuralv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"

	"github.com/knarr-project/knarr/internal/api/openapi"
)

// OpenAPI describes the version for package openapi. It returns new schemas.
func (v *Version) OpenAPI() openapi.CustomKind {
	k := openapi.CustomKind{Kind: v.Kind(), ListKind: v.def.listKind()}
	for _, f := range v.spec.SelectableFields {
		k.SelectableFields = append(k.SelectableFields, fieldName(f.JSONPath))
	}
	s, err := v.makeStructure() // this is not kept: the results are, where they are needed again
	if err != nil || s == nil {
		return k
	}
	k.V3 = s.Unfold().ToKubeOpenAPI()
	// Clients of version 2 treat fields that are not named as forbidden.
	if !s.XPreserveUnknownFields && !v.preserves() {
		k.V2 = structuralv2.ToStructuralOpenAPIV2(s).ToKubeOpenAPI()
	}
	return k
}

// TypeConverter returns the rules by which fields merge, for all versions of the kind.
func (d *Definition) TypeConverter() (managedfields.TypeConverter, error) { return d.converter.Get()() }

func (d *Definition) makeConverter() (managedfields.TypeConverter, error) {
	all := map[string]*kubespec.Schema{}
	for _, v := range d.versions {
		models, err := openapi.CustomModels(v.OpenAPI())
		if err != nil {
			return nil, err
		}
		for name, model := range models {
			all[name] = model
		}
	}
	c, err := managedfields.NewTypeConverter(all, d.CRD.Spec.PreserveUnknownFields)
	if err != nil {
		return nil, fmt.Errorf("schemas of %s: %w", d.CRD.Name, err)
	}
	return c, nil
}

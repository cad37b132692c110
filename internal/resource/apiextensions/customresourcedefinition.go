// Package apiextensions holds CustomResourceDefinition, the kind of apiextensions.k8s.io.
package apiextensions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func CustomResourceDefinitionStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(false)
	s.Default = strategy.On(defaultCustomResourceDefinition)
	s.PrepareCreate = strategy.On(func(c *apiextensionsv1.CustomResourceDefinition) {
		// Lists, not null: `kubectl wait` gives up on conditions that are null.
		c.Status = apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{}, StoredVersions: []string{},
		}
		c.Generation = 1
		noteStorageVersion(c)
	})
	s.PrepareUpdate = strategy.OnBoth(func(c, old *apiextensionsv1.CustomResourceDefinition) {
		c.Status = *old.Status.DeepCopy()
		strategy.SetGeneration(c, old, !apiequality.Semantic.DeepEqual(c.Spec, old.Spec))
		noteStorageVersion(c)
	})
	s.PrepareStatus = strategy.OnBoth(func(c, old *apiextensionsv1.CustomResourceDefinition) {
		c.Spec = *old.Spec.DeepCopy() // a status update may change metadata as well
	})
	// The library checks that the name is PLURAL.GROUP.
	s.ValidateName = func(string, bool) []string { return nil }
	s.ValidateCreate = func(obj runtime.Object) field.ErrorList {
		return withInternal(obj, nil, func(c, _ *apiextensions.CustomResourceDefinition) field.ErrorList {
			return validation.ValidateCustomResourceDefinition(context.Background(), c)
		})
	}
	s.ValidateUpdate = func(obj, old runtime.Object) field.ErrorList {
		return withInternal(obj, old, func(c, old *apiextensions.CustomResourceDefinition) field.ErrorList {
			return validation.ValidateCustomResourceDefinitionUpdate(context.Background(), c, old)
		})
	}
	s.ValidateStatus = func(obj, old runtime.Object) field.ErrorList {
		return withInternal(obj, old, validation.ValidateUpdateCustomResourceDefinitionStatus)
	}
	s.Warnings = func(obj, _ runtime.Object) []string {
		return unknownFormats(obj.(*apiextensionsv1.CustomResourceDefinition))
	}
	return strategy.ShowAny(strategy.WithLooseFinalizers(s), columns.Created, columns.CreatedRow)
}

// withInternal validates with the published library, which works on its own internal type. Of
// metadata, it checks only the name; the caller checks the rest.
func withInternal(obj, old runtime.Object, validate func(c, old *apiextensions.CustomResourceDefinition) field.ErrorList) field.ErrorList {
	c, err := internalDefinition(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	before, err := internalDefinition(old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return slices.DeleteFunc(validate(c, before), func(e *field.Error) bool {
		ofName := (e.Field == "metadata.name" || e.Field == "metadata.generateName") && old == nil && e.Type != field.ErrorTypeRequired
		return strings.HasPrefix(e.Field, "metadata.") && !ofName && e.Field != "metadata.annotations["+apiextensionsv1.KubeAPIApprovedAnnotation+"]"
	})
}

func internalDefinition(obj runtime.Object) (*apiextensions.CustomResourceDefinition, error) {
	c, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, nil
	}
	out := &apiextensions.CustomResourceDefinition{}
	if c = c.DeepCopy(); len(c.Status.StoredVersions) == 0 {
		c.Status.StoredVersions = nil // upstream's messages show it empty
	}
	// The conversion may share memory with its input and sets defaults.
	return out, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c, out, nil)
}

// unknownFormats warns of formats in schemas that the server does not know and therefore does not
// enforce.
func unknownFormats(c *apiextensionsv1.CustomResourceDefinition) (warnings []string) {
	seen := map[string]bool{}
	for i := range c.Spec.Versions {
		s := c.Spec.Versions[i].Schema
		if s == nil || s.OpenAPIV3Schema == nil {
			continue
		}
		props, converted := &apiextensions.JSONSchemaProps{}, &spec.Schema{}
		if apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s.OpenAPIV3Schema.DeepCopy(), props, nil) != nil ||
			schemavalidation.ConvertJSONSchemaProps(props, converted) != nil {
			continue // validation reports the error
		}
		var found []string
		eachSchema(converted, func(s *spec.Schema) {
			for _, format := range schemavalidation.GetUnrecognizedFormats(s, environment.DefaultCompatibilityVersion()) {
				if !seen[format] {
					seen[format] = true
					found = append(found, fmt.Sprintf("unrecognized format %q", format))
				}
			}
		})
		slices.Sort(found) // properties are a map without order
		warnings = append(warnings, found...)
	}
	return warnings
}

// eachSchema calls fn for a schema and all schemas below it.
func eachSchema(s *spec.Schema, fn func(*spec.Schema)) {
	fn(s)
	for _, p := range s.Properties {
		eachSchema(&p, fn)
	}
	if s.Items != nil && s.Items.Schema != nil {
		eachSchema(s.Items.Schema, fn)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		eachSchema(s.AdditionalProperties.Schema, fn)
	}
	for _, list := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			eachSchema(&list[i], fn)
		}
	}
	if s.Not != nil {
		eachSchema(s.Not, fn)
	}
}

// noteStorageVersion adds the storage version to status.storedVersions.
func noteStorageVersion(c *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range c.Spec.Versions {
		if !v.Storage {
			continue
		}
		if !slices.Contains(c.Status.StoredVersions, v.Name) {
			c.Status.StoredVersions = append(c.Status.StoredVersions, v.Name)
		}
		return // validation rejects a second storage version
	}
}

func defaultCustomResourceDefinition(c *apiextensionsv1.CustomResourceDefinition) {
	apiextensionsv1.SetDefaults_CustomResourceDefinition(c)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&c.Spec)
	conv := c.Spec.Conversion
	switch {
	case conv == nil || conv.Webhook == nil:
	case conv.Webhook.ClientConfig == nil && len(conv.Webhook.ConversionReviewVersions) == 0:
		conv.Webhook = nil // an empty webhook has no meaning
	case conv.Webhook.ClientConfig != nil && conv.Webhook.ClientConfig.Service != nil:
		apiextensionsv1.SetDefaults_ServiceReference(conv.Webhook.ClientConfig.Service)
	}
}

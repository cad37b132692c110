package resource

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func customResourceDefinitionStrategy() *Strategy {
	s := withStatusAndGeneration(false)
	s.Default = on(defaultCustomResourceDefinition)
	s.PrepareCreate = on(func(c *apiextensionsv1.CustomResourceDefinition) {
		c.Status = apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{}}
		c.Generation = 1
		noteStorageVersion(c)
	})
	s.PrepareUpdate = onBoth(func(c, old *apiextensionsv1.CustomResourceDefinition) {
		c.Status = *old.Status.DeepCopy()
		setGeneration(c, old, !apiequality.Semantic.DeepEqual(c.Spec, old.Spec))
		noteStorageVersion(c)
	})
	s.PrepareStatus = onBoth(func(c, old *apiextensionsv1.CustomResourceDefinition) {
		status, version, managed := c.Status, c.ResourceVersion, c.ManagedFields
		old.DeepCopyInto(c)
		c.Status, c.ResourceVersion, c.ManagedFields = status, version, managed
	})
	s.ValidateName = func(string, bool) []string { return nil } // the library knows: it is PLURAL.GROUP
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
	return s
}

// withInternal validates with the published library, which works on a form of its own. Metadata other than the name is held to the rules by whoever
// calls.
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
		return strings.HasPrefix(e.Field, "metadata.") && (old != nil || e.Field != "metadata.name") && e.Field != "metadata.annotations["+apiextensionsv1.KubeAPIApprovedAnnotation+"]"
	})
}

func internalDefinition(obj runtime.Object) (*apiextensions.CustomResourceDefinition, error) {
	c, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, nil
	}
	out := &apiextensions.CustomResourceDefinition{}
	// The conversion may share what it is given, and fills in.
	return out, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c.DeepCopy(), out, nil)
}

// noteStorageVersion adds the storage version to the versions in which objects may lie in the store.
func noteStorageVersion(c *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range c.Spec.Versions {
		if v.Storage && !slices.Contains(c.Status.StoredVersions, v.Name) {
			c.Status.StoredVersions = append(c.Status.StoredVersions, v.Name)
		}
	}
}

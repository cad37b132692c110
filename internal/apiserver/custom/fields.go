package custom

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
)

// fieldName is the name of a selectable field in field selectors: its path without the leading dot.
func fieldName(path string) string { return strings.TrimPrefix(path, ".") }

// Fields returns the values of the object's selectable fields. A missing field is empty.
func (v *Version) Fields(u *unstructured.Unstructured) fields.Set {
	set := fields.Set{"metadata.name": u.GetName()}
	if v.def.namespaced() {
		set["metadata.namespace"] = u.GetNamespace()
	}
	for _, f := range v.spec.SelectableFields {
		value, found, err := unstructured.NestedFieldNoCopy(u.Object, pathParts(f.JSONPath)...)
		if err != nil || !found || value == nil {
			set[fieldName(f.JSONPath)] = ""
			continue
		}
		set[fieldName(f.JSONPath)] = fmt.Sprint(value)
	}
	return set
}

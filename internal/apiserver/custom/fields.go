package custom

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
)

// fieldName is what a field selector calls a selectable field: its path without the leading dot.
func fieldName(path string) string { return strings.TrimPrefix(path, ".") }

// Fields are the selectable fields of an object and their values; a field that the object does not have is empty.
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

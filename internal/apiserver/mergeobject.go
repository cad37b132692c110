package apiserver

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// mergePart applies a merge patch only to the top-level fields that it names; the others are copied instead of going through JSON
// twice, and so are the managed fields when the patch does not name them. It does what merging the whole document does or reports
// that it can not: whatever is to be told to the client (an unknown or double field, a value of the wrong type) is left to the
// whole document.
func mergePart(old runtime.Object, gvk schema.GroupVersionKind, p patchRequest) (runtime.Object, bool) {
	var patch map[string]json.RawMessage
	if json.Unmarshal(p.data, &patch) != nil || patch == nil || len(doubleFields(p)) > 0 {
		return nil, false
	}
	from := reflect.ValueOf(old).Elem()
	named, ok := namedFields(from.Type(), patch)
	if !ok {
		return nil, false
	}
	part := newLike(old)
	to := reflect.ValueOf(part).Elem()
	for i := range named {
		to.Field(i).Set(from.Field(i))
	}
	managed, keep := accessor(part).GetManagedFields(), !namesManagedFields(patch["metadata"])
	if keep {
		accessor(part).SetManagedFields(nil)
	}
	merged, ok := mergedPart(part, gvk, p.data)
	if !ok {
		return nil, false
	}
	if _, withMeta := patch["metadata"]; withMeta && keep && managed != nil {
		accessor(merged).SetManagedFields(deepCopyEntries(managed))
	}
	rest := shallowCopy(old)
	left := reflect.ValueOf(rest).Elem()
	for i := range named {
		left.Field(i).SetZero()
	}
	copied, out := reflect.ValueOf(rest.DeepCopyObject()).Elem(), reflect.ValueOf(merged).Elem()
	for i := range out.NumField() {
		if !named[i] {
			out.Field(i).Set(copied.Field(i))
		}
	}
	clearKind(merged)
	return merged, true
}

// mergedPart is an object of the same type as part with the patch applied.
func mergedPart(part runtime.Object, gvk schema.GroupVersionKind, patch []byte) (runtime.Object, bool) {
	doc, err := marshal(part)
	if err != nil {
		return nil, false
	}
	if doc, err = applyMergePatch(withTypeMeta(nil, gvk, doc), patch); err != nil {
		return nil, false
	}
	merged := newLike(part)
	if bounds.Document(doc, merged) != nil {
		return nil, false
	}
	strict, err := kjson.UnmarshalStrict(doc, merged)
	return merged, err == nil && len(strict) == 0
}

// namedFields are the indices of the top-level fields that a patch names; false when it names something else.
func namedFields(t reflect.Type, patch map[string]json.RawMessage) (map[int]bool, bool) {
	named := make(map[int]bool, len(patch))
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if _, ok := patch[name]; ok && name != "" {
			named[i] = true
		}
	}
	return named, len(named) == len(patch)
}

// namesManagedFields tells whether a patch of the metadata has a say in the managed fields.
func namesManagedFields(patch json.RawMessage) bool {
	var fields map[string]json.RawMessage
	if len(patch) == 0 {
		return false
	}
	if json.Unmarshal(patch, &fields) != nil || fields == nil {
		return true
	}
	_, ok := fields["managedFields"]
	return ok
}

func deepCopyEntries(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	out := make([]metav1.ManagedFieldsEntry, len(entries))
	for i := range entries {
		entries[i].DeepCopyInto(&out[i])
	}
	return out
}

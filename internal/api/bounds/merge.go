package bounds

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// MaxMergeWork limits the comparisons of a strategic merge patch: enough to merge 4,000 elements
// into 4,000.
const MaxMergeWork = 50_000_000

// Directives of a strategic merge patch about the list whose name follows.
const (
	orderDirective  = "$setElementOrder/"
	deleteDirective = "$deleteFromPrimitiveList/"
)

// StrategicMerge returns an error for a strategic merge patch that needs more than MaxMergeWork
// comparisons. The library merges lists by key or as sets with linear searches: it looks up each
// element of the patch's list, and of the requested order, in the object's list, in the patch's
// list and in the order. Lists with the same path (the ports of all containers) count as one,
// because a patch may name the same element many times.
func StrategicMerge(original, patch map[string]any, like any) error {
	schema, err := strategicpatch.NewPatchMetaFromStruct(like)
	if err != nil {
		return nil // the library reports the error itself
	}
	m := mergeLists{}
	m.patch(patch, schema, "")
	if len(m) == 0 {
		return nil
	}
	m.original(original, schema, "")
	var most string
	var work, largest int64
	for path, l := range m {
		w := l.work()
		work += w
		if w > largest {
			most, largest = path, w
		}
	}
	if work <= MaxMergeWork {
		return nil
	}
	l := m[most]
	return fmt.Errorf("merging takes %d comparisons of list elements, at most %d are allowed: %s has %d elements, the patch %d, and their order %d",
		work, MaxMergeWork, most, l.stored, l.patched, l.ordered)
}

// mergeLists maps paths to the lists that a patch merges.
type mergeLists map[string]*mergeList

type mergeList struct {
	lists   int // lists of the patch with this path
	patched int // elements of the patch, including deleted ones
	ordered int // elements in the requested order
	stored  int // elements of the longest such list in the object
}

func (l *mergeList) work() int64 {
	if l.stored == 0 && l.ordered == 0 && l.lists <= 1 {
		return 0 // replaced as a whole, without comparisons
	}
	return int64(l.patched+l.ordered) * int64(l.stored+l.patched+l.ordered)
}

// patch records the lists of a patch.
func (m mergeLists) patch(patch map[string]any, schema strategicpatch.LookupPatchMeta, path string) {
	for key, value := range patch {
		switch value := value.(type) {
		case map[string]any:
			if inner, _, err := schema.LookupPatchMetadataForStruct(key); err == nil {
				m.patch(value, inner, path+"."+key)
			}
		case []any:
			m.patchList(key, value, schema, path)
		}
	}
}

func (m mergeLists) patchList(key string, list []any, schema strategicpatch.LookupPatchMeta, path string) {
	name, order := strings.CutPrefix(key, orderDirective)
	name, remove := strings.CutPrefix(name, deleteDirective)
	inner, ok := merged(schema, name)
	if !ok {
		return
	}
	path += "." + name
	l := m[path]
	if l == nil {
		l = &mergeList{}
		m[path] = l
	}
	switch {
	case order:
		l.ordered += len(list)
		return
	case remove:
		l.patched += len(list)
		return
	}
	l.lists++
	l.patched += len(list)
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok {
			m.patch(fields, inner, path+"[]")
		}
	}
}

// original records the lengths of the same lists in the object.
func (m mergeLists) original(object map[string]any, schema strategicpatch.LookupPatchMeta, path string) {
	for key, value := range object {
		switch value := value.(type) {
		case map[string]any:
			if inner, _, err := schema.LookupPatchMetadataForStruct(key); err == nil {
				m.original(value, inner, path+"."+key)
			}
		case []any:
			l := m[path+"."+key]
			if l == nil {
				continue
			}
			l.stored = max(l.stored, len(value))
			inner, _ := merged(schema, key)
			for _, item := range value {
				if fields, ok := item.(map[string]any); ok {
					m.original(fields, inner, path+"."+key+"[]")
				}
			}
		}
	}
}

// merged reports whether a list is merged rather than replaced, and returns the metadata of its
// elements.
func merged(schema strategicpatch.LookupPatchMeta, name string) (strategicpatch.LookupPatchMeta, bool) {
	inner, meta, err := schema.LookupPatchMetadataForSlice(name)
	if err != nil {
		return nil, false
	}
	return inner, slices.Contains(meta.GetPatchStrategies(), "merge")
}

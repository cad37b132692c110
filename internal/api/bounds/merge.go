package bounds

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// MaxMergeWork is how many comparisons a strategic merge patch may ask for: enough to merge 4,000 elements into 4,000.
const MaxMergeWork = 50_000_000

// The directives of a strategic merge patch that say something of the list whose name follows.
const (
	orderDirective  = "$setElementOrder/"
	deleteDirective = "$deleteFromPrimitiveList/"
)

// StrategicMerge tells of a strategic merge patch that asks for more comparisons than MaxMergeWork. What is merged by key or as a set, the library
// looks up one by one: each element of the patch's list, and of the order that it asks for, in the object's list, in the patch's and in the order. Lists
// of the same path (the ports of all containers) count as one, since a patch may name the same element many times.
func StrategicMerge(original, patch map[string]any, like any) error {
	schema, err := strategicpatch.NewPatchMetaFromStruct(like)
	if err != nil {
		return nil // the library says so itself
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

// mergeLists are the lists that a patch merges, by their paths.
type mergeLists map[string]*mergeList

type mergeList struct {
	lists   int // of the patch
	patched int // elements of the patch, those to be deleted included
	ordered int // elements whose order the patch gives
	stored  int // the most elements of a list of the object
}

func (l *mergeList) work() int64 {
	if l.stored == 0 && l.ordered == 0 && l.lists <= 1 {
		return 0 // taken as it is
	}
	return int64(l.patched+l.ordered) * int64(l.stored+l.patched+l.ordered)
}

// patch notes the lists of a patch.
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

// original notes how long those lists are in the object.
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

// merged tells whether a list is merged, not replaced, and what its elements are.
func merged(schema strategicpatch.LookupPatchMeta, name string) (strategicpatch.LookupPatchMeta, bool) {
	inner, meta, err := schema.LookupPatchMetadataForSlice(name)
	if err != nil {
		return nil, false
	}
	return inner, slices.Contains(meta.GetPatchStrategies(), "merge")
}

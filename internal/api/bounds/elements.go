package bounds

import (
	"fmt"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// MaxElements limits the elements of a list or map with owned elements (metadata.managedFields).
// The library keeps them in sorted lists, and each insertion moves all elements behind it. An
// object with this many elements and its managed fields is about as large as the store accepts.
const MaxElements = 50_000

// Elements returns an error for a list or map with more than MaxElements elements if the schema
// gives each element its own owners.
func Elements(content map[string]any, s *schema.Schema, t schema.TypeRef) error {
	return elementsBelow(content, s, t, "")
}

func elementsBelow(value any, s *schema.Schema, t schema.TypeRef, path string) error {
	atom, ok := s.Resolve(t)
	if !ok {
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		if atom.Map == nil || atom.Map.ElementRelationship == schema.Atomic {
			return nil
		}
		if len(value) > MaxElements {
			return tooMany(path, len(value))
		}
		for name, item := range value {
			of := atom.Map.ElementType
			if f, ok := atom.Map.FindField(name); ok {
				of = f.Type
			}
			if err := elementsBelow(item, s, of, path+"."+name); err != nil {
				return err
			}
		}
	case []any:
		if atom.List == nil || atom.List.ElementRelationship != schema.Associative {
			return nil
		}
		if len(value) > MaxElements {
			return tooMany(path, len(value))
		}
		for _, item := range value {
			if err := elementsBelow(item, s, atom.List.ElementType, path+"[]"); err != nil {
				return err
			}
		}
	}
	return nil
}

func tooMany(path string, n int) error {
	return fmt.Errorf("%s has %d elements, at most %d can have owners", path, n, MaxElements)
}

package bounds

import (
	"fmt"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// MaxElements are the most elements of a list or map that can have owners (metadata.managedFields). They lie in sorted lists that each new one is inserted
// into, by moving what is behind it. What so many elements take in an object and in its managed fields is about all that the store takes.
const MaxElements = 50_000

// Elements tells of a list or map with more elements than MaxElements, if elements have owners of their own in it by the schema.
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

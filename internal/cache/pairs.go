package cache

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// Pairs are names with values, sorted by name. A map of the same size takes three times the memory,
// and an entry has two. Label selectors can match *Pairs.
type Pairs []Pair

// Pair is a label or a selectable field.
type Pair struct{ Name, Value string }

// PairsOf returns the pairs of a map.
func PairsOf[M ~map[string]string](m M) Pairs {
	if len(m) == 0 {
		return nil
	}
	p := make(Pairs, 0, len(m))
	for name, value := range m {
		p = append(p, Pair{name, value})
	}
	slices.SortFunc(p, func(a, b Pair) int { return strings.Compare(a.Name, b.Name) })
	return p
}

// Map returns the pairs as a new map; nil if there are none.
func (p Pairs) Map() map[string]string {
	if len(p) == 0 {
		return nil
	}
	m := make(map[string]string, len(p))
	for _, pair := range p {
		m[pair.Name] = pair.Value
	}
	return m
}

// Lookup returns the value of a name, and whether it exists.
func (p *Pairs) Lookup(name string) (value string, exists bool) {
	for i := range *p {
		if (*p)[i].Name == name {
			return (*p)[i].Value, true
		}
	}
	return "", false
}

// Has reports whether there is a value of the name.
func (p *Pairs) Has(name string) bool {
	_, ok := p.Lookup(name)
	return ok
}

// Get returns the value of a name, or "".
func (p *Pairs) Get(name string) string {
	value, _ := p.Lookup(name)
	return value
}

// selectable adapts an entry to field selectors. Every object has the two name fields.
type selectable Entry

// Selectable returns the entry's fields for field selectors, including metadata.name and
// metadata.namespace.
func (e *Entry) Selectable() fields.Fields { return (*selectable)(e) }

func (s *selectable) Get(field string) string {
	switch field {
	case "metadata.name":
		return s.Name
	case "metadata.namespace":
		return s.Namespace
	}
	return s.Fields.Get(field)
}

func (s *selectable) Has(field string) bool {
	switch field {
	case "metadata.name":
		return true
	case "metadata.namespace":
		return s.Namespace != ""
	}
	return s.Fields.Has(field)
}

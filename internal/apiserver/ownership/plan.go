package ownership

import (
	"reflect"
	"slices"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// shape is how the fields below a value are owned.
type shape uint8

const (
	leaf    shape = iota // as a whole: scalars and atomic values
	object               // a Go struct, field by field
	mapping              // a Go map, key by key
	keyed                // a list, item by item, identified by key fields
	setlike              // a list, item by item, identified by value
	unknown              // not supported
)

// node is the plan for a Go type with a schema type.
type node struct {
	shape  shape
	custom bool // the type converts itself: its Go value does not show its schema value
	fields []field
	item   *node // of mapping, keyed and setlike
	keys   []key // of keyed, by name
}

type field struct {
	*value.FieldCacheEntry
	element fieldpath.PathElement
	node    *node
	always  bool // an empty object has the field, too: it has no omitempty
}

type key struct {
	name     string
	entry    *value.FieldCacheEntry
	fallback any // if the item does not have it
}

// typeKey identifies nodes; types may contain themselves.
type typeKey struct {
	goType       reflect.Type
	name         string
	relationship schema.ElementRelationship
}

// Plans are the plans of all kinds, which share many types. The zero value is ready.
type Plans struct {
	mu    sync.Mutex // guards known while plans are made; plans do not change afterwards
	known map[*schema.Schema]map[typeKey]*node
}

func (p *Plans) build(kind *typed.TypedValue, t reflect.Type) *node {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := kind.Schema()
	if p.known[s] == nil {
		if p.known == nil {
			p.known = map[*schema.Schema]map[typeKey]*node{}
		}
		p.known[s] = map[typeKey]*node{}
	}
	b := &builder{schema: s, known: p.known[s]}
	return b.build(t, kind.TypeRef())
}

type builder struct {
	schema *schema.Schema
	known  map[typeKey]*node
}

func (b *builder) build(t reflect.Type, ref schema.TypeRef) *node {
	for t.Kind() == reflect.Pointer && !value.TypeReflectEntryOf(t).CanConvertToUnstructured() {
		t = t.Elem()
	}
	if ref.NamedType == nil {
		n := &node{}
		b.fill(n, t, ref)
		return n
	}
	k := typeKey{goType: t, name: *ref.NamedType}
	if ref.ElementRelationship != nil {
		k.relationship = *ref.ElementRelationship
	}
	if n, ok := b.known[k]; ok {
		return n
	}
	n := &node{}
	b.known[k] = n
	b.fill(n, t, ref)
	return n
}

func (b *builder) fill(n *node, t reflect.Type, ref schema.TypeRef) {
	n.shape = unknown
	atom, ok := b.schema.Resolve(ref)
	if !ok {
		return
	}
	n.custom = value.TypeReflectEntryOf(t).CanConvertToUnstructured()
	switch {
	case (atom.Map == nil || atom.Map.ElementRelationship == schema.Atomic) && (atom.List == nil || atom.List.ElementRelationship != schema.Associative):
		n.shape = leaf
	case n.custom || atom.Scalar != nil || atom.Map != nil && atom.List != nil:
		return // of several shapes, or of one that the Go value does not show
	case atom.Map != nil && t.Kind() == reflect.Struct:
		b.fillObject(n, t, atom.Map)
	case atom.Map != nil && t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		n.shape, n.item = mapping, b.build(t.Elem(), atom.Map.ElementType)
	case atom.List != nil && t.Kind() == reflect.Slice:
		b.fillList(n, t, atom.List)
	}
}

func (b *builder) fillObject(n *node, t reflect.Type, m *schema.Map) {
	zero := reflect.New(t).Elem()
	for _, entry := range value.TypeReflectEntryOf(t).OrderedFields() {
		ref := m.ElementType
		if f, ok := m.FindField(entry.JsonName); ok {
			ref = f.Type
		}
		empty := entry.GetFrom(zero)
		n.fields = append(n.fields, field{
			FieldCacheEntry: entry, element: fieldpath.FieldNameElement(entry.JsonName),
			node: b.build(empty.Type(), ref), always: !entry.CanOmit(empty),
		})
	}
	n.shape = object
}

func (b *builder) fillList(n *node, t reflect.Type, l *schema.List) {
	item := b.build(t.Elem(), l.ElementType)
	if len(l.Keys) == 0 {
		if item.shape == leaf {
			n.shape, n.item = setlike, item
		}
		return
	}
	of, ok := b.schema.Resolve(l.ElementType)
	if !ok || of.Map == nil || t.Elem().Kind() != reflect.Struct {
		return
	}
	entries := value.TypeReflectEntryOf(t.Elem()).Fields()
	for _, name := range slices.Sorted(slices.Values(l.Keys)) {
		entry, ok := entries[name]
		if !ok || entry.TypeEntry.CanConvertToUnstructured() {
			return
		}
		f, _ := of.Map.FindField(name)
		n.keys = append(n.keys, key{name: name, entry: entry, fallback: f.Default})
	}
	n.shape, n.item = keyed, item
}

package ownership

import (
	"encoding/binary"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/knarr-project/knarr/internal/memo"
)

// outlineKey identifies the objects whose fields have the same names: those of one tracker with the
// same outline.
type outlineKey struct {
	tracker *Tracker
	outline string
}

// outlined keeps the encoded field sets of new objects; nil is an empty set.
var outlined = memo.Memo[outlineKey, []byte]{Size: memoEntries}

// Limits of an outline: its bytes, and the keys of one map or items of one list.
const (
	longestOutline = 2 << 10
	mostKeys       = sortThreshold
)

var outlines = sync.Pool{New: func() any { return new(outline) }}

// created returns the entry of a new object's manager. It returns false if the rules of lister do
// not cover the object, or if it is too large to remember.
func (t *Tracker) created(obj runtime.Object, manager string, now time.Time) ([]metav1.ManagedFieldsEntry, bool) {
	o := outlines.Get().(*outline)
	defer outlines.Put(o)
	o.text, o.unknown = o.text[:0], false
	v := reflect.ValueOf(obj).Elem()
	if o.always(t.plan, v); o.unknown || len(o.text) > longestOutline {
		return nil, false
	}
	key := outlineKey{t, string(o.text)}
	encoded, ok := outlined.Get(key)
	if !ok {
		set, l := fieldpath.NewSet(), lister{}
		if l.always(set, t.plan, v); l.unknown {
			return nil, false
		}
		if set = t.filter(set).Difference(unownedFields); !set.Empty() {
			var err error
			if encoded, err = set.ToJSON(); err != nil {
				return nil, false
			}
		}
		if len(encoded) <= memoLongest {
			outlined.Put(key, encoded)
		}
	}
	if encoded == nil {
		return nil, true
	}
	e := t.entryOf(manager, now)
	e.FieldsV1 = &metav1.FieldsV1{}
	e.FieldsV1.SetRawBytes(encoded)
	return []metav1.ManagedFieldsEntry{e}, true
}

// outline describes an object as far as its field set depends on it: the fields that it has, the
// keys of its maps, and the keys of its lists' items. It follows lister, which makes the set.
type outline struct {
	text    []byte
	unknown bool // there is no plan for a value, or the text is too long
}

func (o *outline) number(n int) { o.text = binary.AppendUvarint(o.text, uint64(n)) }

func (o *outline) length(v reflect.Value) {
	o.number(v.Len())
	o.unknown = o.unknown || v.Len() > mostKeys
}

func (o *outline) string(s string) {
	if len(o.text)+len(s) > longestOutline {
		o.unknown = true
		return
	}
	o.number(len(s))
	o.text = append(o.text, s...)
}

func (o *outline) bool(b bool) {
	if b {
		o.text = append(o.text, 1)
	} else {
		o.text = append(o.text, 0)
	}
}

// always is lister.always.
func (o *outline) always(n *node, v reflect.Value) {
	if n.shape != object {
		o.unknown = true
		return
	}
	for i := range n.fields {
		f := &n.fields[i]
		child := f.GetFrom(v)
		if o.unknown || f.CanOmit(child) || f.always && child.IsZero() {
			continue
		}
		o.number(i + 1)
		switch {
		case !f.always:
			o.added(f.node, child)
		case child.Kind() != reflect.Struct:
			o.unknown = o.unknown || f.node.custom
			o.added(f.node, child)
		case f.node.shape == object:
			o.always(f.node, child)
		case f.node.shape == leaf:
			var l lister
			o.bool(l.differsFromZero(child))
			o.unknown = o.unknown || l.unknown
		default:
			o.unknown = true
		}
	}
	o.number(0)
}

// added is lister.added and lister.below.
func (o *outline) added(n *node, v reflect.Value) {
	if n.shape == leaf || o.unknown {
		return
	}
	for v.Kind() == reflect.Pointer {
		if o.bool(v.IsNil()); v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch n.shape {
	case object:
		for i := range n.fields {
			f := &n.fields[i]
			if child := f.GetFrom(v); !f.CanOmit(child) {
				o.number(i + 1)
				o.added(f.node, child)
			}
		}
		o.number(0)
	case mapping:
		o.entries(n, v)
	case keyed, setlike:
		o.length(v)
		for i := range v.Len() {
			if o.unknown {
				return
			}
			item := v.Index(i)
			o.element(n, item)
			o.added(n.item, item)
		}
	default:
		o.unknown = true
	}
}

func (o *outline) entries(n *node, v reflect.Value) {
	o.length(v)
	if o.unknown {
		return
	}
	if texts, ok := v.Interface().(map[string]string); ok && n.item.shape == leaf {
		for _, key := range slices.Sorted(maps.Keys(texts)) {
			o.string(key)
		}
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		o.string(key.String())
		if n.item.shape != leaf {
			o.added(n.item, v.MapIndex(key))
		}
	}
}

// element is lister.element.
func (o *outline) element(n *node, v reflect.Value) {
	if n.shape == setlike {
		o.unknown = o.unknown || n.item.custom
		o.scalar(v)
		return
	}
	for i := range n.keys {
		part := n.keys[i].entry.GetFrom(v)
		omitted := n.keys[i].entry.CanOmit(part)
		if o.bool(omitted); !omitted {
			o.scalar(part)
		}
	}
}

// scalar is scalarOf.
func (o *outline) scalar(v reflect.Value) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.String:
		o.string(v.String())
	case v.CanInt():
		o.text = binary.AppendVarint(o.text, v.Int())
	case v.Kind() == reflect.Bool:
		o.bool(v.Bool())
	default:
		o.unknown = true
	}
}

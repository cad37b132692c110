package ownership

import (
	"cmp"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// maxUpdaters is how many managers may have updated an object before the oldest entries are merged,
// which is left to the field manager.
const maxUpdaters = 10

// Tracker tracks the fields of one kind in one version, written through one subresource or (empty)
// as a whole. Safe for concurrent use.
type Tracker struct {
	version     string
	subresource string
	kind        *typed.TypedValue // an empty object, for schema and type
	reset       fieldpath.Filter  // removes the fields that a write does not change; may be nil
	plan        *node
	empty       runtime.Object
}

// New creates a tracker of a kind's objects as a whole. kind is any object of the kind from the
// type converter, empty the same as a Go value. reset removes the fields that a write does not
// change, and may be nil. empty must not be modified later.
func (p *Plans) New(gv schema.GroupVersion, kind *typed.TypedValue, empty runtime.Object, reset fieldpath.Filter) *Tracker {
	return &Tracker{version: gv.String(), kind: kind, reset: reset, plan: p.build(kind, reflect.TypeOf(empty)), empty: empty}
}

// For returns the tracker of the same kind for a subresource.
func (t *Tracker) For(subresource string, reset fieldpath.Filter) *Tracker {
	sub := *t
	sub.subresource, sub.reset = subresource, reset
	return &sub
}

// unownedFields are the fields without owners.
var unownedFields = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"), fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"), fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"), fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

var managedFieldsPath = fieldpath.MakePathOrDie("metadata", "managedFields")

// entry is a manager's entry with its field set.
type entry struct {
	metav1.ManagedFieldsEntry
	set *fieldpath.Set
	// encoded is set's FieldsV1; nil if it must be encoded again.
	encoded []byte
}

// Create is Update for a new object.
func (t *Tracker) Create(obj runtime.Object, manager string, now time.Time) bool {
	return t.Update(t.empty, obj, manager, now)
}

// Update sets obj's managedFields after manager has changed live into obj; live is empty for a new
// object. It reports whether it did; if not, obj is unchanged.
func (t *Tracker) Update(live, obj runtime.Object, manager string, now time.Time) bool {
	oldMeta, err := meta.Accessor(live)
	if err != nil {
		return false
	}
	newMeta, err := meta.Accessor(obj)
	if err != nil || !utf8.ValidString(manager) {
		return false
	}
	brought := newMeta.GetManagedFields()
	entries, ok := t.entries(oldMeta.GetManagedFields(), brought)
	if !ok {
		return false
	}
	isNew := oldMeta.GetUID() == ""
	if len(entries) == 0 && !isNew {
		newMeta.SetManagedFields(nil) // an object without managedFields stays untracked
		return true
	}
	newMeta.SetManagedFields(nil)
	fresh := isNew && len(entries) == 0 && isEmpty(live)
	if fresh {
		if only, ok := t.created(obj, manager, now); ok {
			newMeta.SetManagedFields(only)
			return true
		}
	}
	set, removed, ok := t.changes(live, obj, fresh)
	if !ok {
		newMeta.SetManagedFields(brought)
		return false
	}
	entries = removeFromOwners(entries, set, removed)
	entries = t.addToManager(entries, set, manager, now)
	if countUpdaters(entries) > maxUpdaters {
		newMeta.SetManagedFields(brought)
		return false
	}
	encoded, err := encode(entries)
	if err != nil {
		newMeta.SetManagedFields(brought)
		return false
	}
	newMeta.SetManagedFields(encoded)
	return true
}

// entries returns the managers so far: those in the written object, else the stored ones. A
// subresource's write cannot have any.
func (t *Tracker) entries(stored, brought []metav1.ManagedFieldsEntry) ([]entry, bool) {
	from := stored
	if t.subresource == "" && brought != nil {
		if len(brought) == 0 || len(brought) == 1 && reflect.DeepEqual(brought[0], metav1.ManagedFieldsEntry{}) {
			return nil, false // the writer resets them
		}
		from = brought
	}
	out := make([]entry, 0, len(from)+1)
	// A map, because a body has room for thousands of entries.
	seen := make(map[writer]bool, len(from))
	for i := range from {
		e := &from[i]
		update := e.Operation == metav1.ManagedFieldsOperationUpdate
		if e.APIVersion != t.version || e.FieldsType != "FieldsV1" || e.FieldsV1 == nil || !utf8.ValidString(e.Manager) ||
			!update && e.Operation != metav1.ManagedFieldsOperationApply || seen[writerOf(e)] {
			return nil, false
		}
		seen[writerOf(e)] = true
		known, ok := t.parse(e.FieldsV1.GetRawString())
		if !ok || known.emptyKey || known.set.Has(managedFieldsPath) {
			return nil, false
		}
		out = append(out, entry{ManagedFieldsEntry: *e, set: known.set, encoded: known.encoded})
	}
	return out, true
}

// writer identifies the owner of an entry.
type writer struct {
	manager, subresource string
	operation            metav1.ManagedFieldsOperationType
}

func writerOf(e *metav1.ManagedFieldsEntry) writer {
	return writer{e.Manager, e.Subresource, e.Operation}
}

// countUpdaters counts the managers that do not apply.
func countUpdaters(entries []entry) int {
	n := 0
	for i := range entries {
		if entries[i].Operation == metav1.ManagedFieldsOperationUpdate {
			n++
		}
	}
	return n
}

// removeFromOwners removes the fields that were set or removed from their previous owners.
func removeFromOwners(entries []entry, set, removed *fieldpath.Set) []entry {
	left := entries[:0]
	for _, e := range entries {
		if taken := e.set.Intersection(set); !taken.Empty() {
			e.set, e.encoded = e.set.Difference(taken), nil
		}
		if removed != nil && !removed.Empty() {
			e.set, e.encoded = e.set.Difference(removed), nil
		}
		if !e.set.Empty() {
			left = append(left, e)
		}
	}
	return left
}

// addToManager makes the manager the owner of the fields that were set.
func (t *Tracker) addToManager(entries []entry, set *fieldpath.Set, manager string, now time.Time) []entry {
	if set = set.Difference(unownedFields); set.Empty() {
		return entries
	}
	mine := entry{ManagedFieldsEntry: t.entryOf(manager, now), set: set}
	if i := slices.IndexFunc(entries, func(e entry) bool { return writerOf(&e.ManagedFieldsEntry) == writerOf(&mine.ManagedFieldsEntry) }); i >= 0 {
		mine.set = set.Union(entries[i].set)
		entries[i] = mine
		return entries
	}
	return append(entries, mine)
}

// entryOf returns the manager's entry, without fields.
func (t *Tracker) entryOf(manager string, now time.Time) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: cmp.Or(manager, "unknown"), Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: t.version, Subresource: t.subresource,
		FieldsType: "FieldsV1", Time: &metav1.Time{Time: now.UTC()},
	}
}

// encode returns the entries in the API's form and order.
func encode(entries []entry) ([]metav1.ManagedFieldsEntry, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	out := make([]metav1.ManagedFieldsEntry, len(entries))
	for i, e := range entries {
		if e.encoded == nil {
			var err error
			if e.encoded, err = e.set.ToJSON(); err != nil {
				return nil, err
			}
		}
		out[i] = e.ManagedFieldsEntry
		out[i].FieldsV1 = &metav1.FieldsV1{}
		out[i].FieldsV1.SetRawBytes(e.encoded)
	}
	slices.SortFunc(out, func(p, q metav1.ManagedFieldsEntry) int {
		return cmp.Or(cmp.Compare(p.Operation, q.Operation), cmp.Compare(seconds(p.Time), seconds(q.Time)),
			cmp.Compare(p.Manager, q.Manager), cmp.Compare(p.APIVersion, q.APIVersion), cmp.Compare(p.Subresource, q.Subresource))
	})
	return out, nil
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

package custom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// DecodeStored reads the bytes of the store, in whatever version they are, and sets the resourceVersion. It is pure; nothing is
// converted, pruned or filled in: that is FromStored.
func DecodeStored(data []byte, revision int64) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object); err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	if u.Object == nil {
		return nil, fmt.Errorf("decode stored object: the value is null")
	}
	// Only what is read as metadata must be well formed; what is not is dropped, so that the object can be mended or deleted.
	if err := coerce(u, nil, true); err != nil {
		return nil, err
	}
	u.SetResourceVersion(strconv.FormatInt(revision, 10))
	return u, nil
}

// EncodeStored gives the bytes for the store, in the storage version.
func (v *Version) EncodeStored(obj *unstructured.Unstructured) ([]byte, error) {
	stored, err := v.def.Convert(obj, v.def.storage)
	if err != nil {
		return nil, err
	}
	content := stored.Object
	if meta, ok := content["metadata"].(map[string]any); ok && meta["resourceVersion"] != nil {
		content = shallow(content)
		meta = shallow(meta)
		delete(meta, "resourceVersion")
		content["metadata"] = meta
	}
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(content); err != nil {
		return nil, fmt.Errorf("encode %s: %w", v.GVK(), err)
	}
	return buf.Bytes(), nil
}

func shallow(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, value := range m {
		out[k] = value
	}
	return out
}

// FromStored makes the object of this version from what DecodeStored gave, which is not changed. Defaults are those of the version in which the
// object is stored; conversion makes of them what it can.
func (v *Version) FromStored(stored runtime.Object) (runtime.Object, error) {
	u, ok := stored.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a stored %s is a %T", v.def.kind(), stored)
	}
	u = u.DeepCopy()
	if own, ok := v.def.Any(u.GroupVersionKind().Version); ok {
		if err := own.repair(u); err != nil {
			return nil, err
		}
		own.dropNulls(u)
		own.Default(u)
	}
	out, err := v.def.Convert(u, v.spec.Name)
	if err != nil {
		return nil, err
	}
	if out.GetGeneration() == 0 {
		out.SetGeneration(1)
	}
	return out, nil
}

// repair leaves of an object what its version's schema has.
func (v *Version) repair(u *unstructured.Unstructured) error {
	s, err := v.structure()
	if err != nil {
		return err
	}
	if err := coerce(u, s, true); err != nil {
		return err
	}
	v.prune(u, s, false)
	return nil
}

// Take makes a client's document an object of this version: metadata must be well formed, fields that the schema does not have are
// removed and told, defaults are filled in.
func (v *Version) Take(u *unstructured.Unstructured) (unknown []error, err error) {
	return v.take(u, true)
}

// take is Take. Whether objects embedded in it must be well formed too, or validation tells what is wrong with them, strict says.
func (v *Version) take(u *unstructured.Unstructured, strict bool) (unknown []error, err error) {
	meta, found, paths, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	if gv := u.GroupVersionKind().GroupVersion(); gv != v.GVK().GroupVersion() {
		return v.takeForeign(u, paths)
	}
	if u.GetKind() != v.GVK().Kind { // validation refuses it; the schema is that of another kind
		if found {
			err = objectmeta.SetObjectMeta(u.Object, meta)
		}
		return unknownFields(paths), err
	}
	s, err := v.structure()
	if err != nil {
		return nil, err
	}
	bad, embedded := objectmeta.CoerceWithOptions(nil, u.Object, s, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if bad != nil && strict {
		return nil, bad
	}
	if found {
		if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
			return nil, err
		}
	}
	paths = append(append(paths, v.prune(u, s, true)...), embedded...)
	if strict {
		v.dropNulls(u)
	}
	v.Default(u)
	return unknownFields(paths), nil
}

// unknownFields are the problems of those at the paths.
func unknownFields(paths []string) (unknown []error) {
	for _, path := range paths {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	return unknown
}

// takeForeign tells what is wrong with an object of another version, which is refused later: what of its metadata nobody knows, and what of the
// rest its own version does not have.
func (v *Version) takeForeign(u *unstructured.Unstructured, ofMetadata []string) (unknown []error, err error) {
	gvk := u.GroupVersionKind()
	if gvk.Group != v.GVK().Group || gvk.Kind != v.GVK().Kind {
		return unknownFields(ofMetadata), nil
	}
	var s *structuralschema.Structural
	if own, ok := v.def.Any(gvk.Version); ok {
		if s, err = own.structure(); err != nil {
			return nil, err
		}
	}
	return unknownFields(append(ofMetadata, v.prune(u.DeepCopy(), s, true)...)), nil
}

// Prune removes fields that the schema does not have from an object that was applied or that an admission plugin has changed, and fills in
// defaults.
func (v *Version) Prune(u *unstructured.Unstructured) error {
	_, err := v.take(u, false)
	return err
}

// Mend drops what of an object's metadata is not of its type. An applied configuration may have it, where the schema takes what Go does not. Only
// in the version of the store: what is converted to it has to be well formed.
func (v *Version) Mend(u *unstructured.Unstructured) error {
	if v.spec.Name == v.def.storage {
		return coerce(u, nil, true)
	}
	dropOverwritten(u)
	_, _, _, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{})
	return err
}

// dropOverwritten drops what is not of its type where every write puts a value of its own.
func dropOverwritten(u *unstructured.Unstructured) {
	meta, _ := u.Object["metadata"].(map[string]any)
	for _, name := range []string{"creationTimestamp", "generation"} {
		alone := map[string]any{"metadata": map[string]any{name: meta[name]}}
		if _, _, _, err := objectmeta.GetObjectMetaWithOptions(alone, objectmeta.ObjectMetaOptions{}); err != nil {
			delete(meta, name)
		}
	}
}

// coerce checks metadata, at the root and of embedded objects; repair drops what is malformed instead of refusing it.
func coerce(u *unstructured.Unstructured, s *structuralschema.Structural, repair bool) error {
	if bad, _ := objectmeta.CoerceWithOptions(nil, u.Object, s, true, objectmeta.CoerceOptions{DropInvalidFields: repair}); bad != nil {
		return bad
	}
	return nil
}

func (v *Version) prune(u *unstructured.Unstructured, s *structuralschema.Structural, track bool) []string {
	if v.preserves() {
		return nil
	}
	if s == nil {
		s = &structuralschema.Structural{} // nothing is known: nothing but metadata stays
	}
	return pruning.PruneWithOptions(u.Object, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: track})
}

// Default fills in the schema's defaults, also for nulls where there may be none. Idempotent.
func (v *Version) Default(u *unstructured.Unstructured) {
	if s := v.schemaFor(u); s != nil {
		defaulting.Default(u.Object, s)
	}
}

// dropNulls removes nulls where there may be none and no default takes their place. It is for what is read; a null that was applied, somebody
// owns, and validation refuses it.
func (v *Version) dropNulls(u *unstructured.Unstructured) {
	if s := v.schemaFor(u); s != nil {
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	}
}

// schemaFor is the schema that the object goes by; nil when there is none.
func (v *Version) schemaFor(u *unstructured.Unstructured) *structuralschema.Structural {
	s, err := v.structure()
	if err != nil || u.GetKind() != v.GVK().Kind {
		return nil
	}
	return s
}

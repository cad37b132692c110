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

// DecodeStored decodes an object from the store, in any version, and sets the resourceVersion. It
// is pure and does not convert, prune or default: FromStored does.
func DecodeStored(data []byte, revision int64) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object); err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	if u.Object == nil {
		return nil, fmt.Errorf("decode stored object: the value is null")
	}
	// Malformed metadata is dropped, so that the object can be repaired or deleted. Other parts are
	// not checked.
	if err := coerce(u, nil, true); err != nil {
		return nil, err
	}
	u.SetResourceVersion(strconv.FormatInt(revision, 10))
	return u, nil
}

// EncodeStored encodes an object for the store, in the storage version.
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

// FromStored makes an object of this version from the result of DecodeStored, which it does not
// change. It applies the defaults of the stored version, and then converts.
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

// repair removes the parts that the version's schema does not have.
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

// Take turns a client's document into an object of this version. Malformed metadata is an error.
// Take removes and reports fields that the schema does not have, and applies defaults.
func (v *Version) Take(u *unstructured.Unstructured) (unknown []error, err error) {
	return v.take(u, true)
}

// take implements Take. strict means that embedded objects must be well formed too; otherwise
// validation reports their errors.
func (v *Version) take(u *unstructured.Unstructured, strict bool) (unknown []error, err error) {
	meta, found, paths, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	if gv := u.GroupVersionKind().GroupVersion(); gv != v.GVK().GroupVersion() {
		return v.takeForeign(u, paths)
	}
	if u.GetKind() != v.GVK().Kind { // validation refuses it; the schema belongs to another kind
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

// unknownFields returns an error for each path.
func unknownFields(paths []string) (unknown []error) {
	for _, path := range paths {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	return unknown
}

// takeForeign reports the unknown fields of an object of another version, which is refused later:
// unknown metadata, and other fields that the object's own version does not have.
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

// Prune removes fields that the schema does not have and applies defaults, after an apply or a
// change by an admission plugin.
func (v *Version) Prune(u *unstructured.Unstructured) error {
	_, err := v.take(u, false)
	return err
}

// Mend drops metadata of the wrong type. An applied configuration can have it, where the schema
// accepts more than Go does. It only does so in the storage version: an object to be converted must
// be well formed.
func (v *Version) Mend(u *unstructured.Unstructured) error {
	if v.spec.Name == v.def.storage {
		return coerce(u, nil, true)
	}
	dropOverwritten(u)
	_, _, _, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{})
	return err
}

// dropOverwritten drops values of the wrong type that every write replaces.
func dropOverwritten(u *unstructured.Unstructured) {
	meta, _ := u.Object["metadata"].(map[string]any)
	for _, name := range []string{"creationTimestamp", "generation"} {
		alone := map[string]any{"metadata": map[string]any{name: meta[name]}}
		if _, _, _, err := objectmeta.GetObjectMetaWithOptions(alone, objectmeta.ObjectMetaOptions{}); err != nil {
			delete(meta, name)
		}
	}
}

// coerce checks the metadata of the object and of embedded objects. repair drops malformed parts
// instead of returning an error.
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
		s = &structuralschema.Structural{} // without a schema only metadata stays
	}
	return pruning.PruneWithOptions(u.Object, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: track})
}

// Default applies the schema's defaults, also to nulls that are not allowed. Idempotent.
func (v *Version) Default(u *unstructured.Unstructured) {
	if s := v.schemaFor(u); s != nil {
		defaulting.Default(u.Object, s)
	}
}

// dropNulls removes nulls that are not allowed and have no default. It is for documents that are
// read. It must not remove an applied null, which has a field owner: validation refuses it.
func (v *Version) dropNulls(u *unstructured.Unstructured) {
	if s := v.schemaFor(u); s != nil {
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	}
}

// schemaFor returns the object's schema; nil if there is none.
func (v *Version) schemaFor(u *unstructured.Unstructured) *structuralschema.Structural {
	s, err := v.structure()
	if err != nil || u.GetKind() != v.GVK().Kind {
		return nil
	}
	return s
}

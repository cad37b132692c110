package registry

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// ListObject returns a page as the kind's list object. Its items are copies.
func (e *Endpoint) ListObject(p *Page) (runtime.Object, error) {
	objs := make([]runtime.Object, len(p.Entries))
	for i, entry := range p.Entries {
		obj, err := e.ObjectOf(entry)
		if err != nil {
			return nil, err
		}
		if obj, err = e.FromHub(obj); err != nil {
			return nil, err
		}
		objs[i] = obj.DeepCopyObject()
	}
	return e.ListOf(objs, p.meta())
}

// ListOf returns the kind's list object of objects in the endpoint's version.
func (e *Endpoint) ListOf(objs []runtime.Object, m metav1.ListMeta) (runtime.Object, error) {
	list, err := e.newList()
	if err != nil {
		return nil, err
	}
	if err := meta.SetList(list, objs); err != nil {
		return nil, fmt.Errorf("list of %s: %w", e.GVR, err)
	}
	acc, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	acc.SetResourceVersion(m.ResourceVersion)
	acc.SetContinue(m.Continue)
	acc.SetRemainingItemCount(m.RemainingItemCount)
	return list, nil
}

// listKind returns the kind of the endpoint's list object.
func (e *Endpoint) listKind() schema.GroupVersionKind {
	if e.Custom != nil {
		return e.Custom.ListKind()
	}
	return e.GVK.GroupVersion().WithKind(e.GVK.Kind + "List")
}

// EncodePage returns a list's body. Its items are the encodings that the cache entries keep.
func (e *Endpoint) EncodePage(p *Page, f wire.Format) (*ListBody, error) {
	switch {
	case f.Table(), f.Metadata():
		objs, err := e.objectsOf(p.Entries)
		if err != nil {
			return nil, err
		}
		return wholeBody(e.EncodeList(objs, p.meta(), f))
	case f.Media == wire.MediaProtobuf:
		return e.protobufList(p)
	case f.Media == wire.MediaYAML, f.Pretty:
		body, err := e.jsonList(p)
		if err != nil {
			return nil, err
		}
		doc, err := body.Bytes()
		if err != nil {
			return nil, err
		}
		return wholeBody(wire.FinishJSON(doc[:len(doc)-1], f)) // without the newline
	}
	return e.jsonList(p)
}

// EncodeList encodes a list of hub objects for the wire.
func (e *Endpoint) EncodeList(objs []runtime.Object, m metav1.ListMeta, f wire.Format) ([]byte, error) {
	switch {
	case f.Table():
		table, err := e.Table(objs, m, f, true)
		if err != nil {
			return nil, err
		}
		return wire.EncodeAs(table, schema.GroupVersionKind{Group: metav1.GroupName, Version: f.AsVersion, Kind: "Table"}, f)
	case f.Metadata():
		return e.encodeMetadataList(objs, m, f)
	}
	list, err := e.ListOf(objs, m)
	if err != nil {
		return nil, err
	}
	return wire.EncodeAs(list, e.listKind(), f)
}

// jsonList orders the fields of custom resources by name, as upstream.
func (e *Endpoint) jsonList(p *Page) (*ListBody, error) {
	kind := e.listKind()
	var head, tail []byte
	if e.Custom != nil {
		meta := p.meta()
		listMeta := map[string]any{"continue": meta.Continue, "resourceVersion": meta.ResourceVersion}
		if meta.RemainingItemCount != nil {
			listMeta["remainingItemCount"] = *meta.RemainingItemCount
		}
		encoded, err := json.Marshal(listMeta)
		if err != nil {
			return nil, err
		}
		head = fmt.Appendf(nil, `{"apiVersion":"%s","items":[`, kind.GroupVersion())
		tail = fmt.Appendf(nil, `],"kind":"%s","metadata":%s}`, kind.Kind, encoded)
	} else {
		listMeta, err := json.Marshal(p.meta())
		if err != nil {
			return nil, err
		}
		head = wire.WithTypeMeta(nil, kind, []byte("{}"))
		head = append(append(head[:len(head)-1], `,"metadata":`...), listMeta...)
		head, tail = append(head, `,"items":[`...), []byte("]}")
	}
	items, err := e.items(p, e.JSONForm, itemForm{e.jsonOf, beforeJSONItem})
	return &ListBody{head: head, items: items, tail: append(tail, '\n')}, err
}

func beforeJSONItem(b []byte, _ int, first bool) []byte {
	if first {
		return b
	}
	return append(b, ',')
}

// protobufList writes ListMeta as field 1 and every item as field 2, as in all list messages.
func (e *Endpoint) protobufList(p *Page) (*ListBody, error) {
	listMeta := p.meta()
	meta, err := listMeta.Marshal()
	if err != nil {
		return nil, err
	}
	items, err := e.items(p, e.ProtobufForm, itemForm{e.protobufOf, beforeProtobufItem})
	if err != nil {
		return nil, err
	}
	raw := binary.AppendUvarint([]byte{0x0a}, uint64(len(meta)))
	raw = append(raw, meta...)
	head, tail := wire.EnvelopeAround(e.listKind(), len(raw)+items.size)
	return &ListBody{head: append(head, raw...), items: items, tail: tail}, nil
}

func beforeProtobufItem(b []byte, size int, _ bool) []byte {
	return binary.AppendUvarint(append(b, 0x12), uint64(size))
}

func (e *Endpoint) encodeMetadataList(objs []runtime.Object, m metav1.ListMeta, f wire.Format) ([]byte, error) {
	if f.As != "PartialObjectMetadataList" {
		name := e.internalName() + "List"
		if e.Custom != nil {
			name = "unstructured.UnstructuredList"
		}
		return nil, wire.NotAcceptableText(fmt.Sprintf("you requested %s, but the requested object is a list (*%s)", f.As, name))
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: m}
	kind := schema.GroupVersionKind{Group: metav1.GroupName, Version: f.AsVersion, Kind: "PartialObjectMetadata"}
	for _, obj := range objs {
		item := e.PartialMetadata(obj)
		item.SetGroupVersionKind(kind)
		list.Items = append(list.Items, *item)
	}
	return wire.EncodeAs(list, schema.GroupVersionKind{Group: metav1.GroupName, Version: f.AsVersion, Kind: "PartialObjectMetadataList"}, f)
}

// PartialMetadata returns an object's metadata alone. It shares its fields with the object.
func (e *Endpoint) PartialMetadata(obj runtime.Object) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	if withMeta, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := withMeta.GetObjectMeta().(*metav1.ObjectMeta); ok {
			m.ObjectMeta = *meta
			return m
		}
	}
	m.ObjectMeta = *objectMetaOf(wire.Accessor(obj))
	return m
}

// objectMetaOf copies the metadata of an object that has no ObjectMeta struct.
func objectMetaOf(acc metav1.Object) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{
		Name: acc.GetName(), GenerateName: acc.GetGenerateName(), Namespace: acc.GetNamespace(), UID: acc.GetUID(),
		ResourceVersion: acc.GetResourceVersion(), Generation: acc.GetGeneration(), CreationTimestamp: acc.GetCreationTimestamp(),
		DeletionTimestamp: acc.GetDeletionTimestamp(), DeletionGracePeriodSeconds: acc.GetDeletionGracePeriodSeconds(),
		Labels: acc.GetLabels(), Annotations: acc.GetAnnotations(), OwnerReferences: acc.GetOwnerReferences(),
		Finalizers: acc.GetFinalizers(), ManagedFields: acc.GetManagedFields(),
	}
}

func (e *Endpoint) objectsOf(entries []*cache.Entry) ([]runtime.Object, error) {
	objs := make([]runtime.Object, len(entries))
	for i, entry := range entries {
		obj, err := e.ObjectOf(entry)
		if err != nil {
			return nil, err
		}
		objs[i] = obj
	}
	return slices.Clip(objs), nil
}

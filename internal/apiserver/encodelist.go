package apiserver

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/cache"
)

// listKind returns the kind of the endpoint's list object.
func (e *endpoint) listKind() schema.GroupVersionKind {
	if e.custom != nil {
		return e.custom.ListKind()
	}
	return e.gvk.GroupVersion().WithKind(e.gvk.Kind + "List")
}

// encodePage returns a list's body. Its items are the encodings that the cache entries keep.
func (e *endpoint) encodePage(p *page, f format) (*listBody, error) {
	switch {
	case f.table(), f.metadata():
		objs, err := e.objectsOf(p.entries)
		if err != nil {
			return nil, err
		}
		return complete(e.encodeList(objs, p.meta(), f))
	case f.media == mediaProtobuf:
		return e.protobufList(p)
	case f.media == mediaYAML, f.pretty:
		body, err := e.jsonList(p)
		if err != nil {
			return nil, err
		}
		doc, err := body.bytes()
		if err != nil {
			return nil, err
		}
		return complete(finishJSON(doc[:len(doc)-1], f)) // without the newline
	}
	return e.jsonList(p)
}

// encodeList encodes a list of hub objects for the wire.
func (e *endpoint) encodeList(objs []runtime.Object, m metav1.ListMeta, f format) ([]byte, error) {
	switch {
	case f.table():
		table, err := e.table(objs, m, f, true)
		if err != nil {
			return nil, err
		}
		return encodeAs(table, schema.GroupVersionKind{Group: metav1.GroupName, Version: f.asVersion, Kind: "Table"}, f)
	case f.metadata():
		return e.encodeMetadataList(objs, m, f)
	}
	list, err := e.listOf(objs, m)
	if err != nil {
		return nil, err
	}
	return encodeAs(list, e.listKind(), f)
}

// jsonList orders the fields of custom resources by name, as upstream.
func (e *endpoint) jsonList(p *page) (*listBody, error) {
	kind := e.listKind()
	var head, tail []byte
	if e.custom != nil {
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
		head = withTypeMeta(nil, kind, []byte("{}"))
		head = append(append(head[:len(head)-1], `,"metadata":`...), listMeta...)
		head, tail = append(head, `,"items":[`...), []byte("]}")
	}
	items, err := e.items(p, e.jsonForm, itemForm{e.jsonOf, beforeJSONItem})
	return &listBody{head: head, items: items, tail: append(tail, '\n')}, err
}

func beforeJSONItem(b []byte, _ int, first bool) []byte {
	if first {
		return b
	}
	return append(b, ',')
}

// protobufList writes ListMeta as field 1 and every item as field 2, as in all list messages.
func (e *endpoint) protobufList(p *page) (*listBody, error) {
	listMeta := p.meta()
	meta, err := listMeta.Marshal()
	if err != nil {
		return nil, err
	}
	items, err := e.items(p, e.protobufForm, itemForm{e.protobufOf, beforeProtobufItem})
	if err != nil {
		return nil, err
	}
	raw := binary.AppendUvarint([]byte{0x0a}, uint64(len(meta)))
	raw = append(raw, meta...)
	head, tail := envelopeAround(e.listKind(), len(raw)+items.size)
	return &listBody{head: append(head, raw...), items: items, tail: tail}, nil
}

func beforeProtobufItem(b []byte, size int, _ bool) []byte {
	return binary.AppendUvarint(append(b, 0x12), uint64(size))
}

func (e *endpoint) encodeMetadataList(objs []runtime.Object, m metav1.ListMeta, f format) ([]byte, error) {
	if f.as != "PartialObjectMetadataList" {
		name := e.internalName() + "List"
		if e.custom != nil {
			name = "unstructured.UnstructuredList"
		}
		return nil, notAcceptableText(fmt.Sprintf("you requested %s, but the requested object is a list (*%s)", f.as, name))
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: m}
	kind := schema.GroupVersionKind{Group: metav1.GroupName, Version: f.asVersion, Kind: "PartialObjectMetadata"}
	for _, obj := range objs {
		item := e.partialMetadata(obj)
		item.SetGroupVersionKind(kind)
		list.Items = append(list.Items, *item)
	}
	return encodeAs(list, schema.GroupVersionKind{Group: metav1.GroupName, Version: f.asVersion, Kind: "PartialObjectMetadataList"}, f)
}

// partialMetadata returns an object's metadata alone. It shares its fields with the object.
func (e *endpoint) partialMetadata(obj runtime.Object) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	if withMeta, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := withMeta.GetObjectMeta().(*metav1.ObjectMeta); ok {
			m.ObjectMeta = *meta
			return m
		}
	}
	m.ObjectMeta = *objectMetaOf(accessor(obj))
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

func (e *endpoint) objectsOf(entries []*cache.Entry) ([]runtime.Object, error) {
	objs := make([]runtime.Object, len(entries))
	for i, entry := range entries {
		obj, err := e.objectOf(entry)
		if err != nil {
			return nil, err
		}
		objs[i] = obj
	}
	return slices.Clip(objs), nil
}

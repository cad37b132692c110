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

// listKind is the kind of the endpoint's list object.
func (e *endpoint) listKind() schema.GroupVersionKind {
	if e.custom != nil {
		return e.custom.ListKind()
	}
	return e.gvk.GroupVersion().WithKind(e.gvk.Kind + "List")
}

// encodePage assembles a list's body from the encodings that its entries keep.
func (e *endpoint) encodePage(p *page, f format) ([]byte, error) {
	switch {
	case f.table(), f.metadata():
		objs, err := e.objectsOf(p.entries)
		if err != nil {
			return nil, err
		}
		return e.encodeList(objs, p.meta(), f)
	case f.media == mediaProtobuf:
		return e.sharedLists.body(e.protobufForm, p, func() ([]byte, error) { return e.encodeProtobufList(p) })
	case f.media == mediaYAML, f.pretty, e.custom != nil:
		return e.encodeJSONList(p, f)
	}
	return e.sharedLists.body(e.jsonForm, p, func() ([]byte, error) { return e.encodeJSONList(p, f) })
}

// encodeList is a list of hub objects on the wire.
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

func (e *endpoint) encodeJSONList(p *page, f format) ([]byte, error) {
	listMeta, err := json.Marshal(p.meta())
	if err != nil {
		return nil, err
	}
	if e.custom != nil {
		return e.encodeCustomList(p, f)
	}
	size := 128 + len(listMeta)
	parts := make([][]byte, len(p.entries))
	for i, entry := range p.entries {
		if parts[i], err = e.jsonOf(entry); err != nil {
			return nil, err
		}
		size += len(parts[i]) + 1
	}
	out := make([]byte, 0, size)
	out = withTypeMeta(out, e.listKind(), []byte("{}"))
	out = append(out[:len(out)-1], `,"metadata":`...)
	out = append(out, listMeta...)
	out = append(out, `,"items":[`...)
	for i, part := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, part...)
	}
	out = append(out, "]}"...)
	return finishJSON(out, f)
}

// encodeProtobufList writes ListMeta as field 1 and every item as field 2, as all list messages have them.
func (e *endpoint) encodeProtobufList(p *page) ([]byte, error) {
	listMeta := p.meta()
	head, err := listMeta.Marshal()
	if err != nil {
		return nil, err
	}
	size := len(head) + binary.MaxVarintLen64
	parts := make([][]byte, len(p.entries))
	for i, entry := range p.entries {
		if parts[i], err = e.protobufOf(entry); err != nil {
			return nil, err
		}
		size += len(parts[i]) + binary.MaxVarintLen32 + 1
	}
	raw := make([]byte, 0, size)
	raw = append(raw, 0x0a)
	raw = binary.AppendUvarint(raw, uint64(len(head)))
	raw = append(raw, head...)
	for _, part := range parts {
		raw = append(raw, 0x12)
		raw = binary.AppendUvarint(raw, uint64(len(part)))
		raw = append(raw, part...)
	}
	return envelope(e.listKind(), raw), nil
}

func (e *endpoint) encodeMetadataList(objs []runtime.Object, m metav1.ListMeta, f format) ([]byte, error) {
	if f.as != "PartialObjectMetadataList" {
		return nil, notAcceptableText(fmt.Sprintf("you requested %s, but the requested object is a list (*%s.%sList)", f.as, internalPackage(e.gvk.Group), e.gvk.Kind))
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

// partialMetadata is an object's metadata alone. Its fields are shared with the object.
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

// objectMetaOf copies the metadata of an object that is not a Go struct of its own.
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

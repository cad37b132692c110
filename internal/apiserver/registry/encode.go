package registry

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// EncodingFunc returns an entry's encoding: (*cache.Entry).EncodedBy or EncodedOnce.
type EncodingFunc func(entry *cache.Entry, form string, encode func() ([]byte, error)) ([]byte, error)

// jsonOf returns the entry's JSON in the endpoint's version, without TypeMeta, or a custom
// resource's complete document. It is encoded once and shared.
func (e *Endpoint) jsonOf(entry *cache.Entry) ([]byte, error) {
	return e.JSONWith((*cache.Entry).EncodedBy, entry)
}

// JSONWith is jsonOf with a choice of whether the entry keeps the encoding.
func (e *Endpoint) JSONWith(by EncodingFunc, entry *cache.Entry) ([]byte, error) {
	return by(entry, e.JSONForm, func() ([]byte, error) {
		if e.Custom != nil {
			return e.marshalCustom(entry)
		}
		obj, err := entry.Peek()
		if err != nil {
			return nil, err
		}
		return e.marshalJSON(obj)
	})
}

// protobufOf returns the entry's bare protobuf message in the endpoint's version. It is encoded
// once and shared.
func (e *Endpoint) protobufOf(entry *cache.Entry) ([]byte, error) {
	return e.ProtobufWith((*cache.Entry).EncodedBy, entry)
}

// ProtobufWith is protobufOf with a choice of whether the entry keeps the encoding.
func (e *Endpoint) ProtobufWith(by EncodingFunc, entry *cache.Entry) ([]byte, error) {
	return by(entry, e.ProtobufForm, func() ([]byte, error) {
		obj, err := entry.Peek()
		if err != nil {
			return nil, err
		}
		return e.marshalProtobuf(obj)
	})
}

func (e *Endpoint) marshalJSON(obj runtime.Object) ([]byte, error) {
	obj, err := e.FromHub(obj)
	if err != nil {
		return nil, err
	}
	return wire.Marshal(obj)
}

func (e *Endpoint) marshalProtobuf(obj runtime.Object) ([]byte, error) {
	obj, err := e.FromHub(obj)
	if err != nil {
		return nil, err
	}
	return wire.MarshalProtobuf(obj)
}

// EncodeEntry encodes one cached object for the wire.
func (e *Endpoint) EncodeEntry(entry *cache.Entry, f wire.Format) ([]byte, error) {
	if f.As != "" {
		obj, err := e.ObjectOf(entry)
		if err != nil {
			return nil, err
		}
		return e.EncodeObject(obj, f)
	}
	if f.Media == wire.MediaProtobuf {
		raw, err := e.protobufOf(entry)
		if err != nil {
			return nil, err
		}
		return wire.Envelope(e.GVK, raw), nil
	}
	raw, err := e.jsonOf(entry)
	if err != nil {
		return nil, err
	}
	return wire.FinishJSON(e.document(raw), f)
}

// document completes the JSON that jsonOf returns.
func (e *Endpoint) document(raw []byte) []byte {
	if e.Custom != nil {
		return slices.Clip(raw)
	}
	return wire.WithTypeMeta(make([]byte, 0, len(raw)+len(e.GVK.Kind)+len(e.GVK.Group)+48), e.GVK, raw)
}

// EncodeObject encodes one hub object for the wire.
func (e *Endpoint) EncodeObject(obj runtime.Object, f wire.Format) ([]byte, error) {
	switch {
	case f.Table():
		table, err := e.Table([]runtime.Object{obj}, metav1.ListMeta{ResourceVersion: wire.Accessor(obj).GetResourceVersion()}, f, true)
		if err != nil {
			return nil, err
		}
		return wire.EncodeAs(table, schema.GroupVersionKind{Group: metav1.GroupName, Version: f.AsVersion, Kind: "Table"}, f)
	case f.As == "PartialObjectMetadataList" && e.Custom != nil:
		return nil, wire.InternalServerError(errors.New("content is not a list"))
	case f.As == "PartialObjectMetadataList":
		return nil, wire.NotAcceptableText(fmt.Sprintf("you requested %s, but the requested object is not a list (*%s)", f.As, e.internalName()))
	case f.Metadata():
		return wire.EncodeAs(e.PartialMetadata(obj), schema.GroupVersionKind{Group: metav1.GroupName, Version: f.AsVersion, Kind: "PartialObjectMetadata"}, f)
	}
	versioned, err := e.FromHub(obj)
	if err != nil {
		return nil, err
	}
	return wire.EncodeAs(versioned, e.GVK, f)
}

// internalName returns the Go type that upstream's messages name.
func (e *Endpoint) internalName() string {
	group := e.GVK.Group
	if alias := e.Kind.Alias; alias != (schema.GroupResource{}) {
		group = alias.Group
	}
	return wire.InternalPackage(group) + "." + e.GVK.Kind
}

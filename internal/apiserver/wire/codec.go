package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/knarr-project/knarr/internal/api"
)

// ProtobufPrefix begins every stored object and every protobuf message on the wire.
const ProtobufPrefix = "k8s\x00"

// protobufMessage is implemented by the generated types of k8s.io/api.
type protobufMessage interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

// WireSerializer decodes protobuf bodies of any kind.
var WireSerializer = protobuf.NewSerializer(api.Scheme, api.Scheme)

// MarshalProtobuf returns obj's bare message, without envelope.
func MarshalProtobuf(obj runtime.Object) ([]byte, error) {
	return marshalBetween(obj, func(int) (head, tail []byte) { return nil, nil })
}

// marshalEnveloped returns the envelope with obj's message, without a copy in between.
func marshalEnveloped(gvk schema.GroupVersionKind, obj runtime.Object) ([]byte, error) {
	return marshalBetween(obj, func(size int) (head, tail []byte) { return EnvelopeAround(gvk, size) })
}

// marshalBetween writes an object's message between a head and a tail that depend on its size.
func marshalBetween(obj runtime.Object, around func(size int) (head, tail []byte)) ([]byte, error) {
	m, ok := obj.(protobufMessage)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf form", obj)
	}
	size := m.Size()
	head, tail := around(size)
	out := make([]byte, len(head)+size+len(tail))
	n, err := m.MarshalToSizedBuffer(out[len(head) : len(head)+size])
	if err == nil && n != size {
		err = fmt.Errorf("encoded %d bytes, expected %d", n, size)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	copy(out, head)
	copy(out[len(head)+size:], tail)
	return out, nil
}

// Envelope wraps a bare message as upstream does: prefix and runtime.Unknown with the type's name.
func Envelope(gvk schema.GroupVersionKind, raw []byte) []byte {
	head, tail := EnvelopeAround(gvk, len(raw))
	out := make([]byte, 0, len(head)+len(raw)+len(tail))
	return append(append(append(out, head...), raw...), tail...)
}

// EnvelopeAround returns the bytes before and after a message of the given size.
func EnvelopeAround(gvk schema.GroupVersionKind, size int) (head, tail []byte) {
	apiVersion, kind := gvk.GroupVersion().String(), gvk.Kind
	typeMeta := 2 + len(apiVersion) + 2 + len(kind) // both are shorter than 128 bytes
	head = make([]byte, 0, len(ProtobufPrefix)+2+typeMeta+1+binary.MaxVarintLen64)
	head = append(head, ProtobufPrefix...)
	head = append(head, 0x0a, byte(typeMeta))
	head = append(head, 0x0a, byte(len(apiVersion)))
	head = append(head, apiVersion...)
	head = append(head, 0x12, byte(len(kind)))
	head = append(head, kind...)
	head = append(head, 0x12)
	// contentEncoding and contentType, empty
	return binary.AppendUvarint(head, uint64(size)), []byte{0x1a, 0x00, 0x22, 0x00}
}

// OpenEnvelope is the inverse of envelope. The returned message aliases data.
func OpenEnvelope(data []byte) (schema.GroupVersionKind, []byte, error) {
	content, ok := bytes.CutPrefix(data, []byte(ProtobufPrefix))
	if !ok {
		return schema.GroupVersionKind{}, nil, fmt.Errorf("provided data does not appear to be a protobuf message, expected prefix %v", []byte(ProtobufPrefix))
	}
	if gvk, raw, ok := openEnvelopeFast(content); ok {
		return gvk, raw, nil
	}
	var u runtime.Unknown // Unmarshal copies, but returns the expected error text
	if err := u.Unmarshal(content); err != nil {
		return schema.GroupVersionKind{}, nil, err
	}
	return schema.FromAPIVersionAndKind(u.APIVersion, u.Kind), u.Raw, nil
}

// openEnvelopeFast reads a runtime.Unknown that has only length-delimited fields.
func openEnvelopeFast(content []byte) (gvk schema.GroupVersionKind, raw []byte, ok bool) {
	var kind runtime.TypeMeta
	for len(content) > 0 {
		number, wire, n := protowire.ConsumeTag(content)
		if n < 0 || wire != protowire.BytesType {
			return gvk, nil, false
		}
		value, m := protowire.ConsumeBytes(content[n:])
		if m < 0 {
			return gvk, nil, false
		}
		content = content[n+m:]
		switch number {
		case 1:
			if kind.Unmarshal(value) != nil {
				return gvk, nil, false
			}
		case 2:
			raw = value
		}
	}
	return schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind), raw, true
}

// StoredCodec encodes a kind's objects for the store and decodes them.
type StoredCodec struct {
	Hub schema.GroupVersionKind // of the objects in memory
	// The kind of the bytes in the store; differs from hub if kinds share a prefix.
	Stored schema.GroupVersionKind
	JSON   bool // upstream stores the kind as JSON
}

// Encode implements the codec of a registry.
func (c *StoredCodec) Encode(obj runtime.Object) ([]byte, error) {
	obj, err := Convert(obj, c.Hub, c.Stored)
	if err != nil {
		return nil, err
	}
	acc, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if rv := acc.GetResourceVersion(); rv != "" {
		acc.SetResourceVersion("")
		defer acc.SetResourceVersion(rv)
	}
	if c.JSON {
		raw, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", obj, err)
		}
		return append(WithTypeMeta(nil, c.Stored, raw), '\n'), nil
	}
	return marshalEnveloped(c.Stored, obj)
}

// Decode returns the hub object, without defaults.
func (c *StoredCodec) Decode(data []byte, revision int64) (runtime.Object, error) {
	var obj runtime.Object
	gvk := c.Stored
	if len(data) > 0 && data[0] == '{' {
		var err error
		if obj, err = decodeStoredJSON(data, &gvk); err != nil {
			return nil, err
		}
	} else {
		found, raw, err := OpenEnvelope(data)
		if err != nil {
			return nil, err
		}
		gvk = found
		if obj, err = api.Scheme.New(gvk); err != nil {
			return nil, err
		}
		m, ok := obj.(protobufMessage)
		if !ok {
			return nil, fmt.Errorf("%T has no protobuf form", obj)
		}
		if err := m.Unmarshal(raw); err != nil {
			return nil, fmt.Errorf("decode %s: %w", gvk.Kind, err)
		}
	}
	if gvk.Kind != c.Hub.Kind {
		return nil, fmt.Errorf("found a %s, expected a %s", gvk.Kind, c.Hub.Kind)
	}
	obj, err := Convert(obj, gvk, c.Hub)
	if err != nil {
		return nil, err
	}
	acc, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	acc.SetResourceVersion(strconv.FormatInt(revision, 10))
	return obj, nil
}

func decodeStoredJSON(data []byte, gvk *schema.GroupVersionKind) (runtime.Object, error) {
	var t runtime.TypeMeta
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, err
	}
	*gvk = schema.FromAPIVersionAndKind(t.APIVersion, t.Kind)
	obj, err := api.Scheme.New(*gvk)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, obj); err != nil {
		return nil, fmt.Errorf("decode %s: %w", gvk.Kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, nil
}

// WithTypeMeta appends raw, the JSON of an object with an empty TypeMeta, with kind and apiVersion
// in front.
func WithTypeMeta(dst []byte, gvk schema.GroupVersionKind, raw []byte) []byte {
	dst = append(dst, `{"kind":"`...)
	dst = append(dst, gvk.Kind...)
	dst = append(dst, `","apiVersion":"`...)
	if gvk.Group != "" {
		dst = append(dst, gvk.Group...)
		dst = append(dst, '/')
	}
	dst = append(dst, gvk.Version...)
	dst = append(dst, '"')
	if len(raw) > 2 {
		dst = append(dst, ',')
	}
	return append(dst, raw[1:]...)
}

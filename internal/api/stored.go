package api

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

var protobufSerializer = protobuf.NewSerializer(Scheme, Scheme)

// EncodeStored encodes a built-in object for the store: protobuf in upstream's envelope and storage
// version.
func EncodeStored(obj runtime.Object) ([]byte, error) {
	gvk, err := gvkOf(obj)
	if err != nil {
		return nil, err
	}
	k, ok := ByKind(gvk.GroupKind())
	if !ok {
		return nil, fmt.Errorf("encode %s for the store: not in the table of kinds", gvk)
	}
	stored := k.StoredAs()
	if obj, err = Convert(obj, stored.GroupVersion()); err != nil {
		return nil, err
	}
	if obj.GetObjectKind().GroupVersionKind() != stored {
		// The envelope takes the kind from the object, which may be shared.
		obj = obj.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(stored)
	}
	var buf bytes.Buffer
	if err := protobufSerializer.Encode(obj, &buf); err != nil {
		return nil, fmt.Errorf("encode %s for the store: %w", gvk, err)
	}
	return buf.Bytes(), nil
}

// DecodeStored decodes bytes that EncodeStored or upstream wrote, protobuf or JSON. It returns the
// object in the hub version with kind and apiVersion set. It applies only defaults that differ
// between the stored version and the hub.
func DecodeStored(data []byte) (runtime.Object, error) {
	obj, gvk, err := Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	return ToHub(obj)
}

package api

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

var protobufSerializer = protobuf.NewSerializer(Scheme, Scheme)

// EncodeStored gives the bytes that lie in the store for a built-in object: protobuf in upstream's envelope, in
// upstream's storage version.
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
		// The envelope takes its type from the object, which may be shared.
		obj = obj.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(stored)
	}
	var buf bytes.Buffer
	if err := protobufSerializer.Encode(obj, &buf); err != nil {
		return nil, fmt.Errorf("encode %s for the store: %w", gvk, err)
	}
	return buf.Bytes(), nil
}

// DecodeStored reads what EncodeStored or upstream has written, protobuf or JSON, and gives the object in the hub
// version, with its kind and apiVersion set. Defaults are not applied, but for those that are others in the hub version.
func DecodeStored(data []byte) (runtime.Object, error) {
	obj, gvk, err := Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	return ToHub(obj)
}

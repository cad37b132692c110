package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/cache"
)

// encoded returns an entry's encoding: (*cache.Entry).EncodedBy or EncodedOnce.
type encoded func(entry *cache.Entry, form string, encode func() ([]byte, error)) ([]byte, error)

// jsonOf returns the entry's JSON in the endpoint's version, without TypeMeta, or a custom
// resource's complete document. It is encoded once and shared.
func (e *endpoint) jsonOf(entry *cache.Entry) ([]byte, error) {
	return e.jsonBy((*cache.Entry).EncodedBy, entry)
}

func (e *endpoint) jsonBy(by encoded, entry *cache.Entry) ([]byte, error) {
	return by(entry, e.jsonForm, func() ([]byte, error) {
		if e.custom != nil {
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
func (e *endpoint) protobufOf(entry *cache.Entry) ([]byte, error) {
	return e.protobufBy((*cache.Entry).EncodedBy, entry)
}

func (e *endpoint) protobufBy(by encoded, entry *cache.Entry) ([]byte, error) {
	return by(entry, e.protobufForm, func() ([]byte, error) {
		obj, err := entry.Peek()
		if err != nil {
			return nil, err
		}
		return e.marshalProtobuf(obj)
	})
}

func (e *endpoint) marshalJSON(obj runtime.Object) ([]byte, error) {
	obj, err := e.fromHub(obj)
	if err != nil {
		return nil, err
	}
	return marshal(obj)
}

func (e *endpoint) marshalProtobuf(obj runtime.Object) ([]byte, error) {
	obj, err := e.fromHub(obj)
	if err != nil {
		return nil, err
	}
	return marshalProtobuf(obj)
}

// encodeEntry encodes one cached object for the wire.
func (e *endpoint) encodeEntry(entry *cache.Entry, f format) ([]byte, error) {
	if f.as != "" {
		obj, err := e.objectOf(entry)
		if err != nil {
			return nil, err
		}
		return e.encodeObject(obj, f)
	}
	if f.media == mediaProtobuf {
		raw, err := e.protobufOf(entry)
		if err != nil {
			return nil, err
		}
		return envelope(e.gvk, raw), nil
	}
	raw, err := e.jsonOf(entry)
	if err != nil {
		return nil, err
	}
	return finishJSON(e.document(raw), f)
}

// document completes the JSON that jsonOf returns.
func (e *endpoint) document(raw []byte) []byte {
	if e.custom != nil {
		return slices.Clip(raw)
	}
	return withTypeMeta(make([]byte, 0, len(raw)+len(e.gvk.Kind)+len(e.gvk.Group)+48), e.gvk, raw)
}

// encodeObject encodes one hub object for the wire.
func (e *endpoint) encodeObject(obj runtime.Object, f format) ([]byte, error) {
	switch {
	case f.table():
		table, err := e.table([]runtime.Object{obj}, metav1.ListMeta{ResourceVersion: accessor(obj).GetResourceVersion()}, f, true)
		if err != nil {
			return nil, err
		}
		return encodeAs(table, schema.GroupVersionKind{Group: metav1.GroupName, Version: f.asVersion, Kind: "Table"}, f)
	case f.as == "PartialObjectMetadataList" && e.custom != nil:
		return nil, unnamed(errors.New("content is not a list"))
	case f.as == "PartialObjectMetadataList":
		return nil, notAcceptableText(fmt.Sprintf("you requested %s, but the requested object is not a list (*%s)", f.as, e.internalName()))
	case f.metadata():
		return encodeAs(e.partialMetadata(obj), schema.GroupVersionKind{Group: metav1.GroupName, Version: f.asVersion, Kind: "PartialObjectMetadata"}, f)
	}
	versioned, err := e.fromHub(obj)
	if err != nil {
		return nil, err
	}
	return encodeAs(versioned, e.gvk, f)
}

// internalName returns the Go type that upstream's messages name.
func (e *endpoint) internalName() string {
	group := e.gvk.Group
	if alias := e.kind.Alias; alias != (schema.GroupResource{}) {
		group = alias.Group
	}
	return internalPackage(group) + "." + e.gvk.Kind
}

// encodeAs encodes an object with the given kind for the wire. The object's own TypeMeta is empty
// or the same.
func encodeAs(obj runtime.Object, gvk schema.GroupVersionKind, f format) ([]byte, error) {
	if f.media == mediaProtobuf {
		return marshalEnveloped(gvk, obj)
	}
	raw, err := marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", gvk.Kind, err)
	}
	if obj.GetObjectKind().GroupVersionKind().Empty() {
		raw = withTypeMeta(make([]byte, 0, len(raw)+len(gvk.Kind)+len(gvk.Group)+48), gvk, raw)
	}
	return finishJSON(raw, f)
}

// marshal is json.Marshal; a custom object is marshalled as its map.
func marshal(obj runtime.Object) ([]byte, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return json.Marshal(u.Object)
	}
	return json.Marshal(obj)
}

// finishJSON turns a complete JSON document into YAML, indented JSON, or a line of JSON, as the
// client accepts.
func finishJSON(doc []byte, f format) ([]byte, error) {
	switch {
	case f.media == mediaYAML:
		return yaml.JSONToYAML(doc)
	case f.pretty:
		var out bytes.Buffer
		if err := json.Indent(&out, doc, "", "  "); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	}
	return append(doc, '\n'), nil
}

// respond writes a complete body.
func respond(w http.ResponseWriter, code int, f format, body []byte) {
	w.Header().Set("Content-Type", f.contentType())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // on error the client has gone
}

// respondAs encodes and writes an object of the kind gvk.
func respondAs(w http.ResponseWriter, code int, f format, obj runtime.Object, gvk schema.GroupVersionKind) {
	body, err := encodeAs(obj, gvk, f)
	if err != nil {
		respondError(w, f, err)
		return
	}
	respond(w, code, f, body)
}

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// EncodeAs encodes an object with the given kind for the wire. The object's own TypeMeta is empty
// or the same.
func EncodeAs(obj runtime.Object, gvk schema.GroupVersionKind, f Format) ([]byte, error) {
	if f.Media == MediaProtobuf {
		return marshalEnveloped(gvk, obj)
	}
	raw, err := Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", gvk.Kind, err)
	}
	if obj.GetObjectKind().GroupVersionKind().Empty() {
		raw = WithTypeMeta(make([]byte, 0, len(raw)+len(gvk.Kind)+len(gvk.Group)+48), gvk, raw)
	}
	return FinishJSON(raw, f)
}

// Marshal is json.Marshal; a custom object is marshalled as its map.
func Marshal(obj runtime.Object) ([]byte, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return json.Marshal(u.Object)
	}
	return json.Marshal(obj)
}

// FinishJSON turns a complete JSON document into YAML, indented JSON, or a line of JSON, as the
// client accepts.
func FinishJSON(doc []byte, f Format) ([]byte, error) {
	switch {
	case f.Media == MediaYAML:
		return yaml.JSONToYAML(doc)
	case f.Pretty:
		var out bytes.Buffer
		if err := json.Indent(&out, doc, "", "  "); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	}
	return append(doc, '\n'), nil
}

// Respond writes a complete body.
func Respond(w http.ResponseWriter, code int, f Format, body []byte) {
	w.Header().Set("Content-Type", f.ContentType())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // on error the client has gone
}

// RespondAs encodes and writes an object of the kind gvk.
func RespondAs(w http.ResponseWriter, code int, f Format, obj runtime.Object, gvk schema.GroupVersionKind) {
	body, err := EncodeAs(obj, gvk, f)
	if err != nil {
		RespondError(w, f, err)
		return
	}
	Respond(w, code, f, body)
}

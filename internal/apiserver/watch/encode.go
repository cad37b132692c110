package watch

import (
	"encoding/binary"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// eventEncoder encodes a watch's events as frames: JSON documents or length-delimited protobuf
// messages.
type eventEncoder struct {
	Endpoint *registry.Endpoint
	format   wire.Format
	// head is the beginning of an object's JSON: kind and apiVersion.
	head []byte
	// rows is set when the table's columns have been sent.
	rows bool
}

// newEventEncoder returns an encoder for the events of an endpoint in a format.
func newEventEncoder(e *registry.Endpoint, f wire.Format) eventEncoder {
	head := wire.WithTypeMeta(nil, e.GVK, []byte("{}"))
	return eventEncoder{Endpoint: e, format: f, head: append(head[:len(head)-1], ',')}
}

// frame returns an event as it goes over the wire. The bytes are shared and must not be modified.
func (x *eventEncoder) frame(ev watchEvent) ([]byte, error) {
	if ev.entry == nil || x.format.As != "" {
		return x.frameAlone(ev)
	}
	form, makeFrame := x.Endpoint.JSONForm, x.jsonEvent
	if x.format.Media == wire.MediaProtobuf {
		form, makeFrame = x.Endpoint.ProtobufForm, x.protobufEvent
	}
	// All watches send the same bytes at about the same time.
	return ev.entry.Passing(form+string(ev.typ), func() ([]byte, error) { return makeFrame(ev) })
}

// encoded does not keep the encoding of a change, because its watchers only need the frame.
func (ev *watchEvent) encoded() registry.EncodingFunc {
	if ev.initial {
		return (*cache.Entry).EncodedBy
	}
	return (*cache.Entry).EncodedOnce
}

func (x *eventEncoder) jsonEvent(ev watchEvent) ([]byte, error) {
	raw, err := x.Endpoint.JSONWith(ev.encoded(), ev.entry)
	if err != nil {
		return nil, err
	}
	if x.Endpoint.Custom != nil {
		return jsonFrame(ev.typ, raw), nil
	}
	return jsonFrame(ev.typ, x.head, raw[1:]), nil
}

func (x *eventEncoder) protobufEvent(ev watchEvent) ([]byte, error) {
	raw, err := x.Endpoint.ProtobufWith(ev.encoded(), ev.entry)
	if err != nil {
		return nil, err
	}
	return protobufFrame(ev.typ, wire.Envelope(x.Endpoint.GVK, raw))
}

// frameAlone encodes events whose frames are not shared.
func (x *eventEncoder) frameAlone(ev watchEvent) ([]byte, error) {
	body, err := x.encode(ev)
	if err != nil {
		return nil, err
	}
	if x.format.Media == wire.MediaProtobuf {
		return protobufFrame(ev.typ, body)
	}
	return jsonFrame(ev.typ, body), nil
}

// encode encodes the object of an event that is not shared: bookmarks, errors, tables and metadata.
func (x *eventEncoder) encode(ev watchEvent) ([]byte, error) {
	if ev.typ == watch.Error {
		return encodeObjectAs(ev.obj, wire.StatusKind, x.format.Media)
	}
	obj := ev.obj
	if ev.entry != nil {
		var err error
		if obj, err = x.Endpoint.ObjectOf(ev.entry); err != nil {
			return nil, err
		}
	}
	switch {
	case x.format.Table():
		table, err := x.Endpoint.Table([]runtime.Object{obj}, metav1.ListMeta{ResourceVersion: wire.Accessor(obj).GetResourceVersion()}, x.format, !x.rows)
		if err != nil {
			return nil, err
		}
		x.rows = true
		return encodeObjectAs(table, schema.GroupVersionKind{Group: metav1.GroupName, Version: x.format.AsVersion, Kind: "Table"}, x.format.Media)
	case x.format.Metadata():
		return encodeObjectAs(x.Endpoint.PartialMetadata(obj), schema.GroupVersionKind{Group: metav1.GroupName, Version: x.format.AsVersion, Kind: "PartialObjectMetadata"}, x.format.Media)
	}
	versioned, err := x.Endpoint.FromHub(obj)
	if err != nil {
		return nil, err
	}
	return encodeObjectAs(versioned, x.Endpoint.GVK, x.format.Media)
}

// encodeObjectAs is EncodeAs for a stream: JSON without newline or indentation.
func encodeObjectAs(obj runtime.Object, gvk schema.GroupVersionKind, media string) ([]byte, error) {
	if media == wire.MediaProtobuf {
		return wire.EncodeAs(obj, gvk, wire.Format{Media: media})
	}
	raw, err := wire.Marshal(obj)
	if err != nil || !obj.GetObjectKind().GroupVersionKind().Empty() {
		return raw, err
	}
	return wire.WithTypeMeta(nil, gvk, raw), nil
}

// jsonFrame returns an event as a line of JSON; the object comes in parts.
func jsonFrame(what watch.EventType, parts ...[]byte) []byte {
	size := len(`{"type":"","object":}`) + len(what) + 1
	for _, part := range parts {
		size += len(part)
	}
	out := make([]byte, 0, size)
	out = append(out, `{"type":"`...)
	out = append(out, what...)
	out = append(out, `","object":`...)
	for _, part := range parts {
		out = append(out, part...)
	}
	return append(out, "}\n"...)
}

// protobufFrame returns a bare metav1.WatchEvent{type, object{raw}} after its length in four bytes.
func protobufFrame(what watch.EventType, object []byte) ([]byte, error) {
	event := metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: object}}
	size := event.Size()
	out := make([]byte, 4+size)
	binary.BigEndian.PutUint32(out, uint32(size))
	_, err := event.MarshalTo(out[4:])
	return out, err
}

package apiserver

import (
	"encoding/binary"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/knarr-project/knarr/internal/cache"
)

// eventEncoder encodes a watch's events as frames: JSON documents or length-delimited protobuf
// messages.
type eventEncoder struct {
	e *endpoint
	f format
	// head is the beginning of an object's JSON: kind and apiVersion.
	head []byte
	// rows is set when the table's columns have been sent.
	rows bool
}

func newEventEncoder(e *endpoint, f format) eventEncoder {
	head := withTypeMeta(nil, e.gvk, []byte("{}"))
	return eventEncoder{e: e, f: f, head: append(head[:len(head)-1], ',')}
}

// frame returns an event as it goes over the wire. The bytes are shared and must not be modified.
func (x *eventEncoder) frame(ev watchEvent) ([]byte, error) {
	if ev.entry == nil || x.f.as != "" {
		return x.frameAlone(ev)
	}
	form, makeFrame := x.e.jsonForm, x.jsonEvent
	if x.f.media == mediaProtobuf {
		form, makeFrame = x.e.protobufForm, x.protobufEvent
	}
	// All watches send the same bytes at about the same time.
	return ev.entry.Passing(form+string(ev.what), func() ([]byte, error) { return makeFrame(ev) })
}

// encoded does not keep the encoding of a change, because its watchers only need the frame.
func (ev *watchEvent) encoded() encoded {
	if ev.initial {
		return (*cache.Entry).EncodedBy
	}
	return (*cache.Entry).EncodedOnce
}

func (x *eventEncoder) jsonEvent(ev watchEvent) ([]byte, error) {
	raw, err := x.e.jsonBy(ev.encoded(), ev.entry)
	if err != nil {
		return nil, err
	}
	if x.e.custom != nil {
		return jsonFrame(ev.what, raw), nil
	}
	return jsonFrame(ev.what, x.head, raw[1:]), nil
}

func (x *eventEncoder) protobufEvent(ev watchEvent) ([]byte, error) {
	raw, err := x.e.protobufBy(ev.encoded(), ev.entry)
	if err != nil {
		return nil, err
	}
	return protobufFrame(ev.what, envelope(x.e.gvk, raw))
}

// frameAlone encodes events whose frames are not shared.
func (x *eventEncoder) frameAlone(ev watchEvent) ([]byte, error) {
	body, err := x.encode(ev)
	if err != nil {
		return nil, err
	}
	if x.f.media == mediaProtobuf {
		return protobufFrame(ev.what, body)
	}
	return jsonFrame(ev.what, body), nil
}

// encode encodes the object of an event that is not shared: bookmarks, errors, tables and metadata.
func (x *eventEncoder) encode(ev watchEvent) ([]byte, error) {
	if ev.what == watch.Error {
		return encodeObjectAs(ev.obj, statusKind, x.f.media)
	}
	obj := ev.obj
	if ev.entry != nil {
		var err error
		if obj, err = x.e.objectOf(ev.entry); err != nil {
			return nil, err
		}
	}
	switch {
	case x.f.table():
		table, err := x.e.table([]runtime.Object{obj}, metav1.ListMeta{ResourceVersion: accessor(obj).GetResourceVersion()}, x.f, !x.rows)
		if err != nil {
			return nil, err
		}
		x.rows = true
		return encodeObjectAs(table, schema.GroupVersionKind{Group: metav1.GroupName, Version: x.f.asVersion, Kind: "Table"}, x.f.media)
	case x.f.metadata():
		return encodeObjectAs(x.e.partialMetadata(obj), schema.GroupVersionKind{Group: metav1.GroupName, Version: x.f.asVersion, Kind: "PartialObjectMetadata"}, x.f.media)
	}
	versioned, err := x.e.fromHub(obj)
	if err != nil {
		return nil, err
	}
	return encodeObjectAs(versioned, x.e.gvk, x.f.media)
}

// encodeObjectAs is encodeAs for a stream: JSON without newline or indentation.
func encodeObjectAs(obj runtime.Object, gvk schema.GroupVersionKind, media string) ([]byte, error) {
	if media == mediaProtobuf {
		return encodeAs(obj, gvk, format{media: media})
	}
	raw, err := marshal(obj)
	if err != nil || !obj.GetObjectKind().GroupVersionKind().Empty() {
		return raw, err
	}
	return withTypeMeta(nil, gvk, raw), nil
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

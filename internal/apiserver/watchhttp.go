package apiserver

import (
	"bufio"
	"context"
	"encoding/binary"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// frames writes watch events as a stream of JSON documents or of length-delimited protobuf messages.
type frames struct {
	e         *endpoint
	f         format
	out       http.ResponseWriter
	flushHTTP func() error
	// w is there from the first event to the next flush: most watches are idle most of the time.
	w *bufio.Writer
	// head is what an object's JSON begins with: kind and apiVersion.
	head []byte
	// rows: the table's columns have been sent.
	rows bool
}

// frameBuffers are for the watches that are just sending.
var frameBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 32*1024) }}

func newFrames(e *endpoint, f format, w http.ResponseWriter) *frames {
	fr := &frames{e: e, f: f, out: w}
	fr.flushHTTP = http.NewResponseController(w).Flush
	head := withTypeMeta(nil, e.gvk, []byte("{}"))
	fr.head = append(head[:len(head)-1], ',')
	return fr
}

func (fr *frames) flush() error {
	if fr.w != nil {
		err := fr.w.Flush()
		fr.w.Reset(nil)
		frameBuffers.Put(fr.w)
		fr.w = nil
		if err != nil {
			return err
		}
	}
	return fr.flushHTTP()
}

func (fr *frames) put(ev watchEvent) error {
	frame, err := fr.frame(ev)
	if err != nil {
		return err
	}
	if fr.w == nil {
		fr.w = frameBuffers.Get().(*bufio.Writer)
		fr.w.Reset(fr.out)
	}
	_, err = fr.w.Write(frame)
	return err
}

// frame is an event as it goes over the wire; shared, not to be modified.
func (fr *frames) frame(ev watchEvent) ([]byte, error) {
	if ev.entry == nil || fr.f.as != "" {
		return fr.frameAlone(ev)
	}
	form, makeFrame := fr.e.jsonForm, fr.jsonEvent
	switch fr.f.media {
	case mediaYAML:
		return fr.yamlEvent(ev)
	case mediaProtobuf:
		form, makeFrame = fr.e.protobufForm, fr.protobufEvent
	}
	// All who watch get the same bytes at about the same time.
	return ev.entry.Passing(form+string(ev.what), func() ([]byte, error) { return makeFrame(ev) })
}

func (fr *frames) yamlEvent(ev watchEvent) ([]byte, error) {
	doc, err := fr.jsonEvent(ev)
	if err != nil {
		return nil, err
	}
	return yamlFrame(doc)
}

func (fr *frames) jsonEvent(ev watchEvent) ([]byte, error) {
	raw, err := fr.e.jsonOf(ev.entry)
	if err != nil {
		return nil, err
	}
	if fr.e.custom != nil {
		return jsonFrame(ev.what, raw), nil
	}
	return jsonFrame(ev.what, fr.head, raw[1:]), nil
}

func (fr *frames) protobufEvent(ev watchEvent) ([]byte, error) {
	raw, err := fr.e.protobufOf(ev.entry)
	if err != nil {
		return nil, err
	}
	return protobufFrame(ev.what, envelope(fr.e.gvk, raw))
}

// frameAlone is for events whose encoding is not shared.
func (fr *frames) frameAlone(ev watchEvent) ([]byte, error) {
	body, err := fr.encode(ev)
	if err != nil {
		return nil, err
	}
	switch fr.f.media {
	case mediaProtobuf:
		return protobufFrame(ev.what, body)
	case mediaYAML:
		return yamlFrame(jsonFrame(ev.what, body))
	}
	return jsonFrame(ev.what, body), nil
}

// encode is for events that have no shared encoding: bookmarks, errors, tables and metadata.
func (fr *frames) encode(ev watchEvent) ([]byte, error) {
	if ev.what == watch.Error {
		return encodeObjectAs(ev.obj, statusKind, fr.f.media)
	}
	obj := ev.obj
	if ev.entry != nil {
		var err error
		if obj, err = fr.e.objectOf(ev.entry); err != nil {
			return nil, err
		}
	}
	switch {
	case fr.f.table():
		table, err := fr.e.table([]runtime.Object{obj}, metav1.ListMeta{ResourceVersion: accessor(obj).GetResourceVersion()}, fr.f, !fr.rows)
		if err != nil {
			return nil, err
		}
		fr.rows = true
		return encodeObjectAs(table, schema.GroupVersionKind{Group: metav1.GroupName, Version: fr.f.asVersion, Kind: "Table"}, fr.f.media)
	case fr.f.metadata():
		return encodeObjectAs(fr.e.partialMetadata(obj), schema.GroupVersionKind{Group: metav1.GroupName, Version: fr.f.asVersion, Kind: "PartialObjectMetadata"}, fr.f.media)
	}
	versioned, err := fr.e.fromHub(obj)
	if err != nil {
		return nil, err
	}
	return encodeObjectAs(versioned, fr.e.gvk, fr.f.media)
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

// jsonFrame is a line of JSON; the object comes in parts.
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

func yamlFrame(doc []byte) ([]byte, error) {
	out, err := finishJSON(doc, format{media: mediaYAML})
	if err != nil {
		return nil, err
	}
	return append(out, "---\n"...), nil
}

// protobufFrame is a bare metav1.WatchEvent{type, object{raw}} after its length in four bytes.
func protobufFrame(what watch.EventType, object []byte) ([]byte, error) {
	event := metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: object}}
	size := event.Size()
	out := make([]byte, 4+size)
	binary.BigEndian.PutUint32(out, uint32(size))
	_, err := event.MarshalTo(out[4:])
	return out, err
}

// serveWatch answers a watch request over plain HTTP.
func (s *Server) serveWatch(ctx context.Context, w http.ResponseWriter, f format, wt *watcher) {
	w.Header().Set("Content-Type", f.contentType())
	w.Header().Set("Transfer-Encoding", "chunked")
	w.WriteHeader(http.StatusOK)
	fr := newFrames(wt.op.endpoint, f, w)
	if err := fr.flush(); err != nil {
		return
	}
	// A watch outlives every deadline that the server sets on plain requests.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	if err := wt.run(ctx, fr); err != nil {
		s.log.Debug("a watch ended early", "resource", wt.op.endpoint.gvr.String(), "err", err)
	}
}

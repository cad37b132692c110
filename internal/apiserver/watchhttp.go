package apiserver

import (
	"bufio"
	"context"
	"encoding/binary"
	"net/http"
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
	w         *bufio.Writer
	flushHTTP func() error
	// head is what an object's JSON begins with: kind and apiVersion.
	head []byte
	// rows: the table's columns have been sent.
	rows bool
}

func newFrames(e *endpoint, f format, w http.ResponseWriter) *frames {
	fr := &frames{e: e, f: f, w: bufio.NewWriterSize(w, 32*1024)}
	fr.flushHTTP = http.NewResponseController(w).Flush
	head := withTypeMeta(nil, e.gvk, []byte("{}"))
	fr.head = append(head[:len(head)-1], ',')
	return fr
}

func (fr *frames) flush() error {
	if err := fr.w.Flush(); err != nil {
		return err
	}
	return fr.flushHTTP()
}

func (fr *frames) put(ev watchEvent) error {
	if ev.entry != nil && fr.f.as == "" {
		if fr.f.media == mediaProtobuf {
			raw, err := fr.e.protobufOf(ev.entry)
			if err != nil {
				return err
			}
			return fr.protobufFrame(ev.what, envelope(fr.e.gvk, raw))
		}
		raw, err := fr.e.jsonOf(ev.entry)
		if err != nil {
			return err
		}
		if fr.e.custom != nil {
			return fr.jsonFrame(ev.what, raw)
		}
		return fr.jsonFrame(ev.what, fr.head, raw[1:])
	}
	body, err := fr.encode(ev)
	if err != nil {
		return err
	}
	if fr.f.media == mediaProtobuf {
		return fr.protobufFrame(ev.what, body)
	}
	return fr.jsonFrame(ev.what, body, nil)
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

func (fr *frames) jsonFrame(what watch.EventType, parts ...[]byte) error {
	if fr.f.media == mediaYAML {
		return fr.yamlFrame(what, parts...)
	}
	_, _ = fr.w.WriteString(`{"type":"`)
	_, _ = fr.w.WriteString(string(what))
	_, _ = fr.w.WriteString(`","object":`)
	for _, part := range parts {
		_, _ = fr.w.Write(part)
	}
	_, err := fr.w.WriteString("}\n") // a bufio.Writer keeps its first error
	return err
}

func (fr *frames) yamlFrame(what watch.EventType, parts ...[]byte) error {
	doc := append([]byte(`{"type":"`+string(what)+`","object":`), parts[0]...)
	for _, part := range parts[1:] {
		doc = append(doc, part...)
	}
	out, err := finishJSON(append(doc, '}'), format{media: mediaYAML})
	if err != nil {
		return err
	}
	_, _ = fr.w.Write(out)
	_, err = fr.w.WriteString("---\n")
	return err
}

// protobufFrame is a bare metav1.WatchEvent{type, object{raw}} after its length in four bytes.
func (fr *frames) protobufFrame(what watch.EventType, object []byte) error {
	event := metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: object}}
	raw, err := event.Marshal()
	if err != nil {
		return err
	}
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(raw)))
	_, _ = fr.w.Write(size[:])
	_, err = fr.w.Write(raw)
	return err
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

package watch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// FuzzWatch opens watches with arbitrary parameters: they are refused, or everything sent before
// the client leaves are whole events.
func FuzzWatch(f *testing.F) {
	for _, q := range []string{
		"watch=1", "watch=1&resourceVersion=0&allowWatchBookmarks=true", "watch=true&resourceVersion=1&timeoutSeconds=1", "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=3", "watch=1&resourceVersion=-1", "watch=1&resourceVersion=18446744073709551616", "watch=1&resourceVersion=9223372036854775807",
		"watch=1&labelSelector=a%3Db,c+in+(d),!e&fieldSelector=metadata.name%3Done", "watch=1&fieldSelector=metadata.namespace!%3Ddefault&limit=1&continue=x", "watch=1&timeoutSeconds=-9223372036854775808", "watch=1&resourceVersionMatch=Exact&resourceVersion=2",
	} {
		f.Add(q, "default", false)
		f.Add(q, "", true)
	}
	s := newTestServer(f)
	for _, name := range []string{"one", "two", "three"} {
		m := configMap(name)
		m.Labels = map[string]string{"a": "b", "c": "d"}
		s.create(f, m)
	}
	e := s.configMaps(f)
	// Open the cache with a first reader, which otherwise may leave before the next one comes.
	if _, err := e.Cache(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, namespace string, protobuf bool) {
		values, _ := url.ParseQuery(text)
		var opts metav1.ListOptions
		if metav1.Convert_url_Values_To_v1_ListOptions(&values, &opts, nil) != nil {
			return
		}
		op := &verb.Operation{Engine: s.engine, Endpoint: e, Verb: "watch", Namespace: namespace, GVK: e.GVK, Warn: func(string) {}}
		req, err := op.Endpoint.NewListRequest(opts)
		if err != nil {
			if !wire.IsStatus(err) {
				t.Errorf("the error is no Status: %v", err)
			}
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if rv, err := registry.ParseRevision(opts.ResourceVersion); err == nil && rv > e.Revision() {
			cancel() // it would wait for further events
		}
		w, err := s.Open(ctx, op, req)
		if err != nil {
			// Upstream answers an invalid revision like unknown errors.
			if _, number := errors.AsType[*field.Error](err); !wire.IsStatus(err) && !number {
				t.Errorf("the error is no Status: %v", err)
			}
			return
		}
		w.OnInitialSent = cancel
		out := httptest.NewRecorder()
		f := wire.Format{Media: wire.MediaJSON, Stream: true}
		if protobuf {
			f.Media = wire.MediaProtobuf
		}
		_ = w.run(ctx, newFrames(e, f, out)) // the client leaves
		for decoder := json.NewDecoder(out.Body); !protobuf; {
			var event metav1.WatchEvent
			err := decoder.Decode(&event)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || event.Type == "" || len(event.Object.Raw) == 0 {
				t.Fatalf("%q: an event is %+v: %v", text, event, err)
			}
		}
	})
}

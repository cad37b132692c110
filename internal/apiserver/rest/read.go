package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// errExport refuses export=true: a client that expects an object without server-set fields must not
// get one with them.
var errExport = apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")

func (c *Call) serveGet(ctx context.Context) error {
	if list, asked := c.R.URL.Query()["export"]; asked {
		export := true
		if err := runtime.Convert_Slice_string_To_bool(&list, &export, nil); err != nil || export {
			return errExport
		}
	}
	var opts metav1.GetOptions
	err := query(c, &opts, func(v *url.Values, o *metav1.GetOptions) error {
		return metav1.Convert_url_Values_To_v1_GetOptions(v, o, nil)
	})
	if err != nil {
		return err
	}
	if obj, handled, err := c.VirtualGet(ctx, &opts); handled {
		if err != nil {
			return err
		}
		return c.answer(ctx, http.StatusOK, obj)
	}
	from, read := c.reading(ctx, "cacher.Get")
	entry, err := c.Get(from, opts.ResourceVersion)
	read.End()
	if invalid := (*field.Error)(nil); errors.As(err, &invalid) && c.Endpoint.IsEvents() {
		// Upstream has no cache of Events, and its store words the error differently.
		err = registry.BadRevision(err)
	}
	if err != nil {
		return err
	}
	span, since := c.serializing(ctx), time.Now()
	defer span.End()
	body, err := c.Endpoint.EncodeEntry(entry, c.format)
	wire.RecordOf(c.W).AddLatency(audit.Serialize, time.Since(since))
	if err != nil {
		return c.Endpoint.ExplainDecodeError(ctx, entry.Key, entry.Stored(), err)
	}
	c.respond(http.StatusOK, body)
	return nil
}

func (c *Call) listRequest() (*registry.ListRequest, error) {
	var opts metav1.ListOptions
	err := query(c, &opts, func(v *url.Values, o *metav1.ListOptions) error {
		return metav1.Convert_url_Values_To_v1_ListOptions(v, o, nil)
	})
	if err != nil {
		return nil, err
	}
	// Only for the query parameter watch=true, not for the legacy path /watch/.
	if opts.Watch && opts.SendInitialEvents == nil && opts.ResourceVersionMatch == "" && (opts.ResourceVersion == "" || opts.ResourceVersion == "0") {
		// Such a watch always begins with the current objects; a client that takes bookmarks is
		// told when they end.
		initial := true
		opts.SendInitialEvents, opts.ResourceVersionMatch = &initial, metav1.ResourceVersionMatchNotOlderThan
	}
	if c.Info.LegacyWatch {
		opts.Watch = true
		if c.Info.Name != "" {
			opts.FieldSelector = "metadata.name=" + c.Info.Name
		}
	}
	return c.Endpoint.NewListRequest(opts)
}

func (c *Call) serveList(ctx context.Context) error {
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	if objs, handled, err := c.VirtualList(ctx, req); handled {
		if err != nil {
			return err
		}
		body, err := c.Endpoint.EncodeList(objs, metav1.ListMeta{}, c.format)
		if err != nil {
			return err
		}
		c.respond(http.StatusOK, body)
		return nil
	}
	from, read := c.reading(ctx, "cacher.GetList")
	p, err := c.List(from, req)
	read.End()
	if err != nil {
		return err
	}
	p.Zipped = wire.AcceptsGzip(c.R)
	span, since := c.serializing(ctx), time.Now()
	defer span.End()
	body, err := c.Endpoint.EncodePage(p, c.format)
	wire.RecordOf(c.W).AddLatency(audit.Serialize, time.Since(since))
	if err == nil {
		err = c.respondList(body)
	} else {
		err = c.Endpoint.ExplainListError(ctx, p.Entries, err)
	}
	p.Release()
	return err
}

func (c *Call) serveWatch(ctx context.Context) error {
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	since := time.Now()
	from, read := c.reading(ctx, "cacher.Watch")
	w, err := c.resources.Watches.Open(from, c.Operation, req)
	read.End()
	if err != nil {
		return err
	}
	cw, ok := c.W.(*telemetry.ResponseRecorder)
	if !ok {
		cw = &telemetry.ResponseRecorder{ResponseWriter: c.W}
	}
	defer func() {
		if !cw.Detached && w.Cursor != nil {
			w.Cursor.Close() // also if it never ran
		}
	}()
	w.OnInitialSent = cw.Seats.Done
	if w.Bookmark {
		w.OnInitialSent = func() {
			if w.Initial == nil { // otherwise it ended early
				c.resources.Metrics.WatchListed(c.Endpoint.GVR, watchScope(c.Namespace, req), time.Since(since))
			}
			cw.Seats.Done()
		}
	}
	if wsstream.IsWebSocketRequest(c.R) {
		c.resources.Watches.ServeMessages(ctx, c.W, c.R, c.format, w)
		return nil
	}
	c.resources.Watches.Serve(ctx, cw, c.R, c.format, w)
	return nil
}

// watchScope is how much of the cluster a watch is about, as metrics call it.
func watchScope(namespace string, req *registry.ListRequest) string {
	if _, ok := req.Fields.RequiresExactMatch("metadata.name"); ok {
		return "resource"
	}
	if namespace != "" {
		return "namespace"
	}
	return "cluster"
}

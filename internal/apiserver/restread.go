package apiserver

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
)

// errExport refuses export=true: a client that expects an object without server-set fields must not
// get one with them.
var errExport = apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")

func (c *call) serveGet(ctx context.Context) error {
	if list, asked := c.r.URL.Query()["export"]; asked {
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
	if obj, handled, err := c.virtualGet(ctx, &opts); handled {
		if err != nil {
			return err
		}
		return c.answer(ctx, http.StatusOK, obj)
	}
	from, read := c.reading(ctx, "cacher.Get")
	entry, err := c.get(from, opts.ResourceVersion)
	read.End()
	if invalid := (*field.Error)(nil); errors.As(err, &invalid) && c.endpoint.ofEvents() {
		// Upstream has no cache of Events, and its store words the error differently.
		err = badRevision(err)
	}
	if err != nil {
		return err
	}
	span, since := c.serializing(ctx), time.Now()
	defer span.End()
	body, err := c.endpoint.encodeEntry(entry, c.f)
	recordOf(c.w).Spent(audit.Serialize, time.Since(since))
	if err != nil {
		return c.endpoint.undecrypted(ctx, entry.Key, entry.Stored(), err)
	}
	c.respond(http.StatusOK, body)
	return nil
}

func (c *call) listRequest() (*listRequest, error) {
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
	if c.info.legacyWatch {
		opts.Watch = true
		if c.info.name != "" {
			opts.FieldSelector = "metadata.name=" + c.info.name
		}
	}
	return c.endpoint.newListRequest(opts)
}

func (c *call) serveList(ctx context.Context) error {
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	if objs, handled, err := c.virtualList(ctx, req); handled {
		if err != nil {
			return err
		}
		body, err := c.endpoint.encodeList(objs, metav1.ListMeta{}, c.f)
		if err != nil {
			return err
		}
		c.respond(http.StatusOK, body)
		return nil
	}
	from, read := c.reading(ctx, "cacher.GetList")
	p, err := c.list(from, req)
	read.End()
	if err != nil {
		return err
	}
	p.zipped = takesGzip(c.r)
	span, since := c.serializing(ctx), time.Now()
	defer span.End()
	body, err := c.endpoint.encodePage(p, c.f)
	recordOf(c.w).Spent(audit.Serialize, time.Since(since))
	if err == nil {
		err = c.respondList(body)
	} else {
		err = c.endpoint.undecryptedAmong(ctx, p.entries, err)
	}
	p.sent()
	return err
}

func (c *call) serveWatch(ctx context.Context) error {
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	since := time.Now()
	from, read := c.reading(ctx, "cacher.Watch")
	w, err := c.resources.watches.open(from, c.operation, req)
	read.End()
	if err != nil {
		return err
	}
	cw, ok := c.w.(*codeWriter)
	if !ok {
		cw = &codeWriter{ResponseWriter: c.w}
	}
	defer func() {
		if !cw.taken && w.cursor != nil {
			w.cursor.Close() // also if it never ran
		}
	}()
	w.begun = cw.seats.Done
	if w.bookmark {
		w.begun = func() {
			if w.initial == nil { // otherwise it ended early
				c.resources.metrics.watchListed(c.endpoint.gvr, watchScope(c.namespace, req), time.Since(since))
			}
			cw.seats.Done()
		}
	}
	if wsstream.IsWebSocketRequest(c.r) {
		c.resources.watches.serveMessages(ctx, c.w, c.r, c.f, w)
		return nil
	}
	c.resources.watches.serve(ctx, cw, c.r, c.f, w)
	return nil
}

// watchScope is how much of the cluster a watch is about, as metrics call it.
func watchScope(namespace string, req *listRequest) string {
	if _, ok := req.fields.RequiresExactMatch("metadata.name"); ok {
		return "resource"
	}
	if namespace != "" {
		return "namespace"
	}
	return "cluster"
}

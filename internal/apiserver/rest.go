package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/knarr-project/knarr/internal/auth"
)

// call is one HTTP request for a resource.
type call struct {
	*operation
	w    http.ResponseWriter
	r    *http.Request
	info *requestInfo
	f    format

	warned sync.Map   // texts of warnings already sent
	mu     sync.Mutex // guards the header while a collection is deleted by several goroutines
}

// serveResource carries out an authorized request for a resource.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request, info *requestInfo, user auth.User) {
	e, ok := s.endpoints.find(info.gvr)
	if !ok {
		if s.endpoints.serves(info.gvr.GroupVersion()) {
			respondError(w, jsonFormat, errNoSuchPath)
			return
		}
		notFoundPath(w)
		return
	}
	c := &call{w: w, r: r, info: info, f: jsonFormat}
	c.operation = &operation{
		server: s, endpoint: e, user: user, verb: info.verb, namespace: info.namespace, name: info.name,
		subresource: info.subresource, gvk: e.gvk, warn: c.warnHeader,
	}
	if !e.kind.Namespaced {
		c.namespace = ""
	}
	if text, ok := deprecated[e.gvr]; ok {
		c.warn(text)
		s.metrics.deprecated.WithLabelValues(e.gvr.Group, e.gvr.Version, e.gvr.Resource, info.subresource, "").Set(1)
	}
	if e.custom != nil {
		if !c.reaches() {
			notFoundPath(w)
			return
		}
		if text := e.custom.DeprecationWarning(); text != "" {
			c.warn(text)
		}
	}
	if err := c.check(); err != nil {
		respondError(w, jsonFormat, err)
		return
	}
	if sub, ok := e.kind.Subresource(info.subresource); ok {
		if sub.Kind.GroupKind() != e.gvk.GroupKind() { // else the subresource shows the object, in the version asked for
			c.gvk = sub.Kind
		}
		if sub.Connect {
			s.connect(c)
			return
		}
	}
	var err error
	if e.custom != nil {
		c.f, err = negotiateCustom(r, c.transforms(), info.verb == "watch")
	} else {
		c.f, err = negotiate(r, c.transforms(), info.verb == "watch")
	}
	if err != nil {
		respondError(w, c.f, err)
		return
	}
	if err := c.serve(r.Context()); err != nil {
		respondError(w, c.f, err)
	}
}

// transforms: what is posted to be answered, not kept (reviews, bindings, evictions, tokens), has no rows.
func (c *call) transforms() transforms {
	objects := c.endpoint.kind.Object != nil || c.endpoint.custom != nil
	answered := c.info.verb == "create" && (c.subresource != "" || c.endpoint.kind.Virtual)
	return transforms{metadata: objects, table: objects && !answered}
}

// check tells whether the endpoint has what the path asks for.
func (c *call) check() error {
	e, info := c.endpoint, c.info
	if e.custom != nil {
		if err := c.checkCustom(); err != nil {
			return err
		}
	}
	if info.subresource == "" {
		if !e.kind.Namespaced && info.namespace != "" && e.gvr.Resource != "namespaces" {
			return errNoSuchPath
		}
		if e.kind.Namespaced && info.namespace == "" && info.name != "" && info.verb != "list" && info.verb != "watch" {
			return errNoSuchPath
		}
		if info.verb == "create" && info.name != "" {
			if e.kind.HasVerb("get") {
				return errMethod
			}
			return errNoSuchPath
		}
		clusterWide := e.kind.Namespaced && info.namespace == ""
		if e.kind.HasVerb(info.verb) && !(clusterWide && info.verb != "list" && info.verb != "watch") {
			return nil
		}
		return errMethod
	}
	if !e.hasSubresource(info.subresource) {
		return errNoSuchPath
	}
	if info.subresource == "proxy" && c.r.Method == http.MethodOptions {
		return nil // whatever is behind a proxy answers OPTIONS itself; the request has no verb, so only who may do everything gets here
	}
	if !e.allows(info.verb, info.subresource) {
		return errMethod
	}
	return nil
}

// deprecated kinds warn whoever uses them.
var deprecated = map[schema.GroupVersionResource]string{
	{Version: "v1", Resource: "endpoints"}:         "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
	{Version: "v1", Resource: "componentstatuses"}: "v1 ComponentStatus is deprecated in v1.19+",
}

// errNoSuchPath is a 404 of the path, not of the object.
var errNoSuchPath = apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "the server could not find the requested resource", 0, false)

func (c *call) serve(ctx context.Context) error {
	switch c.info.verb {
	case "get":
		return c.serveGet(ctx)
	case "list":
		return c.serveList(ctx)
	case "watch":
		return c.serveWatch(ctx)
	case "create":
		return c.serveCreate(ctx)
	case "update":
		return c.serveUpdate(ctx)
	case "patch":
		return c.servePatch(ctx)
	case "delete":
		return c.serveDelete(ctx)
	case "deletecollection":
		return c.serveDeleteCollection(ctx)
	}
	return errMethod
}

// warnHeader tells the client something that is no error.
func (c *call) warnHeader(text string) {
	if _, again := c.warned.LoadOrStore(text, true); again {
		return
	}
	header, err := utilnet.NewWarningHeader(299, "-", text)
	if err != nil {
		return // not printable as a header
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.Header().Add("Warning", header)
}

// query decodes the URL's options with one of the generated functions of apimachinery.
func query[T any](c *call, into *T, decode func(*url.Values, *T) error) error {
	if len(c.info.query) == 0 {
		return nil
	}
	if err := decode(&c.info.query, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (c *call) serveGet(ctx context.Context) error {
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
		return c.answer(http.StatusOK, obj)
	}
	entry, err := c.get(ctx, opts.ResourceVersion)
	if err != nil {
		return err
	}
	body, err := c.endpoint.encodeEntry(entry, c.f)
	if err != nil {
		return err
	}
	c.respond(http.StatusOK, body)
	return nil
}

// respond writes the body, compressed if it is large and the client takes that.
func (c *call) respond(code int, body []byte) {
	c.recordAnswer(body)
	if zipped, ok := compress(c.r, body); ok {
		c.w.Header().Set("Content-Encoding", "gzip")
		c.w.Header().Set("Vary", "Accept-Encoding")
		respond(c.w, code, c.f, zipped)
		return
	}
	respond(c.w, code, c.f, body)
}

// answer writes an object of the endpoint's kind, or of the subresource's own.
func (c *call) answer(code int, obj runtime.Object) error {
	var body []byte
	var err error
	if c.gvk == c.endpoint.gvk {
		body, err = c.endpoint.encodeObject(obj, c.f)
	} else {
		body, err = encodeAs(obj, c.gvk, c.f)
	}
	if err != nil {
		return err
	}
	c.respond(code, body)
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
	if c.info.legacyWatch {
		opts.Watch = true
		if c.info.name != "" {
			opts.FieldSelector = "metadata.name=" + c.info.name
		}
	}
	return c.newListRequest(opts)
}

func (c *call) serveList(ctx context.Context) error {
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	if obj, handled, err := c.virtualList(ctx); handled {
		if err != nil {
			return err
		}
		respondAs(c.w, http.StatusOK, c.f, obj, c.endpoint.listKind())
		return nil
	}
	p, err := c.list(ctx, req)
	if err != nil {
		return err
	}
	body, err := c.endpoint.encodePage(p, c.f)
	if err != nil {
		return err
	}
	c.respond(http.StatusOK, body)
	return nil
}

func (c *call) serveWatch(ctx context.Context) error {
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	w, err := c.openWatch(ctx, req)
	if err != nil {
		return err
	}
	if cw, ok := c.w.(*codeWriter); ok {
		w.begun = cw.seats.Done
	}
	if wsstream.IsWebSocketRequest(c.r) {
		c.server.serveWatchMessages(ctx, c.w, c.r, c.f, w)
		return nil
	}
	c.server.serveWatch(ctx, c.w, c.f, w)
	return nil
}

// body reads and decodes the request's object, in the version of the path.
func (c *call) body(validation string) (runtime.Object, error) {
	media, err := contentType(c.r)
	if err != nil {
		return nil, err
	}
	data, err := readBody(c.r)
	if err != nil {
		return nil, err
	}
	var obj runtime.Object
	if c.takesCustom() {
		obj, err = c.decodeCustom(media, data, validation)
	} else {
		obj, err = decodeBody(media, data, c.gvk, validation, c.warn)
	}
	if err == nil {
		recordRequest(recordOf(c.w), obj, c.gvk)
	}
	return obj, err
}

func (c *call) serveCreate(ctx context.Context) error {
	opts := &metav1.CreateOptions{}
	err := query(c, opts, func(v *url.Values, o *metav1.CreateOptions) error {
		return metav1.Convert_url_Values_To_v1_CreateOptions(v, o, nil)
	})
	if err != nil {
		return err
	}
	if errs := metav1validation.ValidateCreateOptions(opts); len(errs) > 0 {
		return invalidOptions("CreateOptions", errs)
	}
	obj, err := c.body(opts.FieldValidation)
	if err != nil {
		return err
	}
	c.setOptions(opts, opts.DryRun, opts.FieldManager)
	out, err := c.createAny(ctx, obj)
	if err != nil {
		return err
	}
	code := http.StatusCreated
	if status, ok := out.(*metav1.Status); ok {
		respondAs(c.w, code, c.f, status, statusKind)
		return nil
	}
	return c.answer(code, out)
}

func (c *call) setOptions(opts runtime.Object, dryRun []string, manager string) {
	c.options, c.dryRun = opts, len(dryRun) > 0
	c.fieldManager = managerOrAgent(manager, c.r.UserAgent())
}

func invalidOptions(kind string, errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

func (c *call) serveUpdate(ctx context.Context) error {
	opts := &metav1.UpdateOptions{}
	err := query(c, opts, func(v *url.Values, o *metav1.UpdateOptions) error {
		return metav1.Convert_url_Values_To_v1_UpdateOptions(v, o, nil)
	})
	if err != nil {
		return err
	}
	if errs := metav1validation.ValidateUpdateOptions(opts); len(errs) > 0 {
		return invalidOptions("UpdateOptions", errs)
	}
	obj, err := c.body(opts.FieldValidation)
	if err != nil {
		return err
	}
	c.setOptions(opts, opts.DryRun, opts.FieldManager)
	out, created, err := c.replaceAny(ctx, obj)
	if err != nil {
		return err
	}
	return c.answer(codeOf(created), out)
}

func codeOf(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (c *call) servePatch(ctx context.Context) error {
	opts := &metav1.PatchOptions{}
	err := query(c, opts, func(v *url.Values, o *metav1.PatchOptions) error {
		return metav1.Convert_url_Values_To_v1_PatchOptions(v, o, nil)
	})
	if err != nil {
		return err
	}
	kind, err := patchType(c.r)
	if c.endpoint.custom != nil && (err != nil || kind == types.StrategicMergePatchType) {
		return errUnsupportedCustomPatch
	}
	if err != nil {
		return err
	}
	data, err := readBody(c.r)
	if err != nil {
		return err
	}
	if errs := metav1validation.ValidatePatchOptions(opts, kind); len(errs) > 0 {
		return invalidOptions("PatchOptions", errs)
	}
	c.setOptions(patchAsUpdate(opts), opts.DryRun, opts.FieldManager)
	recordPatch(recordOf(c.w), data)
	p := patchRequest{kind: kind, data: data, force: opts.Force != nil && *opts.Force, validation: opts.FieldValidation}
	out, created, err := c.patchAny(ctx, p)
	if err != nil {
		return err
	}
	return c.answer(codeOf(created), out)
}

// patchAsUpdate is what admission gets to see of a patch's options.
func patchAsUpdate(opts *metav1.PatchOptions) *metav1.UpdateOptions {
	return &metav1.UpdateOptions{DryRun: opts.DryRun, FieldManager: opts.FieldManager, FieldValidation: opts.FieldValidation}
}

func patchType(r *http.Request) (types.PatchType, error) {
	media := mediaOf(r.Header.Get("Content-Type"))
	switch kind := types.PatchType(media); kind {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType:
		return kind, nil
	}
	return "", errUnsupportedPatch
}

func (c *call) serveDelete(ctx context.Context) error {
	opts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	out, gone, err := c.delete(ctx, opts)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if !gone && opts.OrphanDependents != nil && !*opts.OrphanDependents {
		code = http.StatusAccepted
	}
	if gone && !returnsDeleted[c.endpoint.resource] {
		respondAs(c.w, code, c.f, deletedStatus(c.endpoint, out), statusKind)
		return nil
	}
	return c.answer(code, out)
}

// deletedStatus is the answer for kinds that do not give back the deleted object.
func deletedStatus(e *endpoint, obj runtime.Object) *metav1.Status {
	meta := accessor(obj)
	return &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: meta.GetName(), Group: e.gvr.Group, Kind: e.gvr.Resource, UID: meta.GetUID()}}
}

// deleteOptions come in the body or, without one, in the query.
func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	data, err := readBody(c.r)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		media, err := contentType(c.r)
		if err != nil {
			return nil, err
		}
		if opts, err = decodeDeleteOptions(media, data); err != nil {
			return nil, err
		}
	} else if err := query(c, opts, func(v *url.Values, o *metav1.DeleteOptions) error {
		return metav1.Convert_url_Values_To_v1_DeleteOptions(v, o, nil)
	}); err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, invalidOptions("DeleteOptions", errs)
	}
	c.options, c.dryRun = opts, len(opts.DryRun) > 0
	return opts, nil
}

func (c *call) serveDeleteCollection(ctx context.Context) error {
	opts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	c.info.query.Del("watch")
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	p, err := c.deleteCollection(ctx, opts, req)
	if err != nil {
		return err
	}
	f := c.f
	if f.as != "" {
		f.as = ""
	}
	body, err := c.endpoint.encodePage(p, f)
	if err != nil {
		return err
	}
	c.respond(http.StatusOK, body)
	return nil
}

// decodeDeleteOptions takes DeleteOptions of any group version, as clients send them.
func decodeDeleteOptions(media string, data []byte) (*metav1.DeleteOptions, error) {
	want := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	if media == mediaJSON {
		gvk, err := findKind(data)
		switch {
		case err != nil:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("couldn't get version/kind; json parse error: %v", err))
		case gvk.Kind == "":
			want = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		case gvk.Kind != "DeleteOptions":
			return nil, apierrors.NewBadRequest(notRegistered(gvk).Error())
		default:
			want = gvk
		}
	} else if media == mediaYAML {
		want = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
	} else if gvk, _, err := openEnvelope(data); err == nil && gvk.Kind == "DeleteOptions" {
		want = gvk
	}
	obj, err := decodeBody(media, data, want, metav1.FieldValidationIgnore, func(string) {})
	if err != nil {
		return nil, err
	}
	opts, ok := obj.(*metav1.DeleteOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is a %T where DeleteOptions were expected", obj))
	}
	return opts, nil
}

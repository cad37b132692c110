package apiserver

import (
	"context"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/trace"
)

// traced begins the span of an authenticated request (KEP-647). It depends on the user whether the
// span continues the client's trace.
func (c *chain) traced(w *telemetry.ResponseRecorder, r *http.Request, info *wire.RequestInfo, id string, user *auth.User, began, authenticated time.Time) context.Context {
	if c.cfg.Tracer == nil {
		return trace.Received(r.Context(), r.Header)
	}
	ctx, span := c.cfg.Tracer.Serve(r.Context(), r, spanName(r.Method, info), maySample(user), began, trace.Text("audit-id", id))
	if !span.On() {
		return ctx
	}
	span.Stage("authentication", began, authenticated)
	w.Span = span
	counted, read := w.OnEnd, r.ContentLength
	w.OnEnd = func() {
		counted()
		span.Answered(max(w.Code, http.StatusOK), read, w.Written)
	}
	return ctx
}

// maySample reports whether the user may decide that its requests are sampled: only users
// who may see or do everything.
func maySample(user *auth.User) bool {
	return slices.Contains(user.Groups, auth.GroupMasters) || slices.Contains(user.Groups, groupMonitoring)
}

// groupMonitoring is the group of monitoring systems.
const groupMonitoring = "system:monitoring"

// spanName returns upstream's name: the path without the names of objects.
func spanName(method string, info *wire.RequestInfo) string {
	if !info.IsResource {
		return method
	}
	name := method + " /api"
	if info.GVR.Group != "" {
		name = method + " /apis/" + info.GVR.Group
	}
	name += "/" + info.GVR.Version
	if info.Namespace != "" {
		name += "/namespaces/{:namespace}"
	}
	name += "/" + info.GVR.Resource
	if info.Name != "" || selectsOneName(info) {
		name += "/{:name}"
	}
	if info.Subresource != "" {
		name += "/" + info.Subresource
	}
	return name
}

// selectsOneName reports whether a collection request selects a single name.
func selectsOneName(info *wire.RequestInfo) bool {
	selector, err := fields.ParseSelector(info.Query.Get("fieldSelector"))
	if err != nil {
		return false
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	return ok && name != ""
}

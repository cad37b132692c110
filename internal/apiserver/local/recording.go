package local

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
)

// record begins the audit record of a request by function call: components of this process are
// recorded like all clients.
func (c *routedClient) record(ctx context.Context, verb string, res schema.GroupVersionResource, namespace, name string, subresource []string, obj runtime.Object) (context.Context, *audit.Record, error) {
	if c.from.Audit == nil {
		return ctx, nil, nil
	}
	a := auth.Attributes{User: c.user, Verb: verb, Namespace: namespace, Group: res.Group, Version: res.Version, Resource: res.Resource, Name: name}
	if len(subresource) > 0 {
		a.Subresource = subresource[0]
	}
	rec := c.from.Audit.Begin(uuid.NewString(), &a, nil)
	if err := rec.Received(); err != nil {
		return ctx, nil, apierrors.NewInternalError(err)
	}
	if e, ok := c.from.Engine.Kinds.Find(res); ok {
		wire.RecordRequest(rec, obj, e.GVK)
	}
	return audit.With(ctx, rec), rec, nil
}

// recordResult ends such a record.
func recordResult(rec *audit.Record, out runtime.Object, err error) {
	if rec == nil {
		return
	}
	if err != nil {
		status := wire.StatusOf(err)
		wire.RecordStatus(rec, status)
		rec.Stage(auditv1.StageResponseComplete, int(status.Code))
		return
	}
	if out != nil && rec.WantsResponse() {
		if doc, err := json.Marshal(out); err == nil {
			rec.Response(doc)
		}
	}
	rec.Stage(auditv1.StageResponseComplete, http.StatusOK)
}

func nameOf(obj runtime.Object) string {
	if acc, err := meta.Accessor(obj); err == nil {
		return acc.GetName()
	}
	return ""
}

func namespaceOf(obj runtime.Object) string {
	if acc, err := meta.Accessor(obj); err == nil {
		return acc.GetNamespace()
	}
	return ""
}

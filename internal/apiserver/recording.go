package apiserver

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/auth"
)

// recordRequest adds a request's object to the audit record.
func recordRequest(rec *audit.Record, obj runtime.Object, gvk schema.GroupVersionKind) {
	if rec == nil || obj == nil {
		return
	}
	if acc, err := meta.Accessor(obj); err == nil {
		rec.Identify(acc)
	}
	if !rec.WantsRequest() {
		return
	}
	if doc, err := encodeAs(obj, gvk, jsonFormat); err == nil {
		rec.Request(doc)
	}
}

// asRecorded returns the request's object for the audit record: with the defaults of its kind, as
// upstream.
func (c *call) asRecorded(obj runtime.Object) runtime.Object {
	if !recordOf(c.w).WantsRequest() || c.gvk != c.endpoint.gvk || c.takesCustom() {
		return obj
	}
	hub, err := c.endpoint.toHub(obj.DeepCopyObject())
	if err != nil {
		return obj
	}
	out, err := c.endpoint.fromHub(hub)
	if err != nil {
		return obj
	}
	return out
}

// recordStatus adds the Status that is the answer to the audit record.
func recordStatus(rec *audit.Record, status *metav1.Status) {
	rec.Status(status)
	if !rec.WantsResponse() {
		return
	}
	if doc, err := encodeAs(status, statusKind, jsonFormat); err == nil {
		rec.Response(doc)
	}
}

// recordDeletion adds the delete options to the audit record, with the kind and version that
// upstream writes there.
func recordDeletion(rec *audit.Record, opts *metav1.DeleteOptions) {
	if !rec.WantsRequest() {
		return
	}
	shown := *opts
	shown.TypeMeta = metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: metav1.GroupName + "/" + runtime.APIVersionInternal}
	if doc, err := json.Marshal(&shown); err == nil {
		rec.Request(doc)
	}
}

// recordPatch adds a patch to the audit record; the YAML of an apply is converted to JSON.
func recordPatch(rec *audit.Record, patch []byte) {
	if !rec.WantsRequest() {
		return
	}
	if !json.Valid(patch) {
		var err error
		if patch, err = yamlToJSON(patch); err != nil {
			return // the request will be refused
		}
	}
	rec.Request(patch)
}

// recordAnswer adds the response's body to the audit record.
func (c *call) recordAnswer(body []byte) {
	rec := recordOf(c.w)
	if !rec.WantsResponse() {
		return
	}
	switch c.f.media {
	case mediaYAML:
		if doc, err := yaml.YAMLToJSON(body); err == nil {
			rec.Response(doc)
		}
	case mediaProtobuf:
		obj, gvk, err := wireSerializer.Decode(body, nil, nil)
		if err != nil {
			return // tables and metadata have types that the scheme does not have
		}
		if doc, err := encodeAs(obj, *gvk, jsonFormat); err == nil {
			rec.Response(doc)
		}
	default:
		rec.Response(body)
	}
}

// record begins the audit record of a request by function call: components of this process are
// recorded like all clients.
func (c *routedClient) record(ctx context.Context, verb string, res schema.GroupVersionResource, namespace, name string, subresource []string, obj runtime.Object) (context.Context, *audit.Record, error) {
	if c.from.audit == nil {
		return ctx, nil, nil
	}
	a := auth.Attributes{User: c.user, Verb: verb, Namespace: namespace, Group: res.Group, Version: res.Version, Resource: res.Resource, Name: name}
	if len(subresource) > 0 {
		a.Subresource = subresource[0]
	}
	rec := c.from.audit.Begin(uuid.NewString(), &a, nil)
	if err := rec.Received(); err != nil {
		return ctx, nil, apierrors.NewInternalError(err)
	}
	if e, ok := c.from.engine.kinds.find(res); ok {
		recordRequest(rec, obj, e.gvk)
	}
	return audit.With(ctx, rec), rec, nil
}

// recordResult ends such a record.
func recordResult(rec *audit.Record, out runtime.Object, err error) {
	if rec == nil {
		return
	}
	if err != nil {
		status := statusOf(err)
		recordStatus(rec, status)
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

package rest

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// auditForm returns the request's object for the audit record: with the defaults of its kind, as
// upstream.
func (c *Call) auditForm(obj runtime.Object) runtime.Object {
	if !wire.RecordOf(c.W).WantsRequest() || c.GVK != c.Endpoint.GVK || c.HasCustomBody() {
		return obj
	}
	hub, err := c.Endpoint.ToHub(obj.DeepCopyObject())
	if err != nil {
		return obj
	}
	out, err := c.Endpoint.FromHub(hub)
	if err != nil {
		return obj
	}
	return out
}

// recordAnswer adds the response's body to the audit record.
func (c *Call) recordAnswer(body []byte) {
	rec := wire.RecordOf(c.W)
	if !rec.WantsResponse() {
		return
	}
	switch c.format.Media {
	case wire.MediaYAML:
		if doc, err := yaml.YAMLToJSON(body); err == nil {
			rec.Response(doc)
		}
	case wire.MediaProtobuf:
		obj, gvk, err := wire.WireSerializer.Decode(body, nil, nil)
		if err != nil {
			return // tables and metadata have types that the scheme does not have
		}
		if doc, err := wire.EncodeAs(obj, *gvk, wire.JSONFormat); err == nil {
			rec.Response(doc)
		}
	default:
		rec.Response(body)
	}
}

package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

func (c *Call) serveDelete(ctx context.Context) error {
	opts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	out, gone, err := c.Delete(ctx, opts)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if !gone && opts.OrphanDependents != nil && !*opts.OrphanDependents {
		code = http.StatusAccepted
	}
	if gone && !verb.ReturnsDeleted[c.Endpoint.Resource] {
		status := deletedStatus(c.Endpoint, out)
		wire.RecordStatus(wire.RecordOf(c.W), status)
		wire.RespondAs(c.W, code, c.format, status, wire.StatusKind)
		return nil
	}
	return c.answer(ctx, code, out)
}

// deletedStatus is the answer for kinds that do not return the deleted object.
func deletedStatus(e *registry.Endpoint, obj runtime.Object) *metav1.Status {
	meta := wire.Accessor(obj)
	return &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: meta.GetName(), Group: e.GVR.Group, Kind: e.GVR.Resource, UID: meta.GetUID()}}
}

// deleteOptions reads the options from the body or, if it is empty, from the query.
func (c *Call) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	data, err := wire.ReadBody(c.R)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		media, err := wire.ContentType(c.R)
		if err != nil {
			return nil, err
		}
		if opts, err = decodeDeleteOptions(media, data); err != nil {
			return nil, err
		}
		wire.RecordDeletion(wire.RecordOf(c.W), opts)
	} else if err := query(c, opts, func(v *url.Values, o *metav1.DeleteOptions) error {
		return metav1.Convert_url_Values_To_v1_DeleteOptions(v, o, nil)
	}); err != nil {
		return nil, err
	}
	// The feature AllowUnsafeMalformedObjectDeletion is off.
	opts.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, InvalidOptions("DeleteOptions", errs)
	}
	c.Options, c.DryRun = opts, len(opts.DryRun) > 0
	return opts, nil
}

func (c *Call) serveDeleteCollection(ctx context.Context) error {
	c.Info.Query.Del("watch")
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	opts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	if rv := req.Opts.ResourceVersion; rv != "" && rv != "0" && req.Opts.ResourceVersionMatch == "" {
		// Upstream reads it in pages, which are exact.
		req.Opts.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	}
	p, err := c.DeleteCollection(ctx, opts, req)
	if err != nil {
		return err
	}
	span := c.serializing(ctx)
	defer span.End()
	body, err := c.Endpoint.EncodePage(p, c.format)
	if err != nil {
		return err
	}
	return c.respondList(body)
}

// decodeDeleteOptions accepts DeleteOptions of any group version, as clients send them.
func decodeDeleteOptions(media string, data []byte) (*metav1.DeleteOptions, error) {
	want := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	if media == wire.MediaYAML {
		doc, _, err := wire.AsJSON(media, data)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		media, data = wire.MediaJSON, doc
	}
	if media == wire.MediaJSON {
		gvk, err := wire.FindKind(data)
		switch {
		case err != nil:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("couldn't get version/kind; json parse error: %v", err))
		case wire.InvalidAPIVersion(data) != nil:
			return nil, apierrors.NewBadRequest(wire.InvalidAPIVersion(data).Error())
		case gvk.Kind == "":
			want = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		// DeleteOptions of a custom resource's group or of meta.k8s.io; all have the same fields.
		case gvk.Kind == want.Kind && !api.Scheme.Recognizes(gvk):
			opts := &metav1.DeleteOptions{}
			if err := kjson.UnmarshalCaseSensitivePreserveInts(data, opts); err != nil {
				return nil, wire.CannotHandle(want, want, err)
			}
			return opts, nil
		case gvk.Kind != "DeleteOptions":
			if gvk.Version == "" {
				// Upstream looks in this group.
				gvk = metav1.SchemeGroupVersion.WithKind(gvk.Kind)
			}
			return nil, apierrors.NewBadRequest(wire.NotRegistered(gvk).Error())
		default:
			want = gvk
		}
	} else if gvk, _, err := wire.OpenEnvelope(data); err == nil && gvk.Kind == "DeleteOptions" {
		want = gvk
	}
	obj, err := wire.DecodeBody(media, data, want, metav1.FieldValidationIgnore, func(string) {})
	if err != nil {
		return nil, err
	}
	opts, ok := obj.(*metav1.DeleteOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is a %T where DeleteOptions were expected", obj))
	}
	return opts, nil
}

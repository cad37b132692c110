package apiserver

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
)

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
		status := deletedStatus(c.endpoint, out)
		recordStatus(recordOf(c.w), status)
		respondAs(c.w, code, c.f, status, statusKind)
		return nil
	}
	return c.answer(ctx, code, out)
}

// deletedStatus is the answer for kinds that do not return the deleted object.
func deletedStatus(e *endpoint, obj runtime.Object) *metav1.Status {
	meta := accessor(obj)
	return &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: meta.GetName(), Group: e.gvr.Group, Kind: e.gvr.Resource, UID: meta.GetUID()}}
}

// deleteOptions reads the options from the body or, if it is empty, from the query.
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
		recordDeletion(recordOf(c.w), opts)
	} else if err := query(c, opts, func(v *url.Values, o *metav1.DeleteOptions) error {
		return metav1.Convert_url_Values_To_v1_DeleteOptions(v, o, nil)
	}); err != nil {
		return nil, err
	}
	// The feature AllowUnsafeMalformedObjectDeletion is off.
	opts.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, invalidOptions("DeleteOptions", errs)
	}
	c.options, c.dryRun = opts, len(opts.DryRun) > 0
	return opts, nil
}

func (c *call) serveDeleteCollection(ctx context.Context) error {
	c.info.query.Del("watch")
	req, err := c.listRequest()
	if err != nil {
		return err
	}
	opts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	if rv := req.opts.ResourceVersion; rv != "" && rv != "0" && req.opts.ResourceVersionMatch == "" {
		// Upstream reads it in pages, which are exact.
		req.opts.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	}
	p, err := c.deleteCollection(ctx, opts, req)
	if err != nil {
		return err
	}
	span := c.serializing(ctx)
	defer span.End()
	body, err := c.endpoint.encodePage(p, c.f)
	if err != nil {
		return err
	}
	return c.respondList(body)
}

// decodeDeleteOptions accepts DeleteOptions of any group version, as clients send them.
func decodeDeleteOptions(media string, data []byte) (*metav1.DeleteOptions, error) {
	want := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	if media == mediaYAML {
		doc, _, err := asJSON(media, data)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		media, data = mediaJSON, doc
	}
	if media == mediaJSON {
		gvk, err := findKind(data)
		switch {
		case err != nil:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("couldn't get version/kind; json parse error: %v", err))
		case brokenVersion(data) != nil:
			return nil, apierrors.NewBadRequest(brokenVersion(data).Error())
		case gvk.Kind == "":
			want = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		// DeleteOptions of a custom resource's group or of meta.k8s.io; all have the same fields.
		case gvk.Kind == want.Kind && !api.Scheme.Recognizes(gvk):
			opts := &metav1.DeleteOptions{}
			if err := kjson.UnmarshalCaseSensitivePreserveInts(data, opts); err != nil {
				return nil, unreadable(want, want, err)
			}
			return opts, nil
		case gvk.Kind != "DeleteOptions":
			if gvk.Version == "" {
				// Upstream looks in this group.
				gvk = metav1.SchemeGroupVersion.WithKind(gvk.Kind)
			}
			return nil, apierrors.NewBadRequest(notRegistered(gvk).Error())
		default:
			want = gvk
		}
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

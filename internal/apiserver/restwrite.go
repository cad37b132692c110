package apiserver

import (
	"context"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource"
)

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
		resource.DefaultBody(obj)
		recordRequest(recordOf(c.w), c.asRecorded(obj), c.gvk)
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
		recordStatus(recordOf(c.w), status)
		respondAs(c.w, code, c.f, status, statusKind)
		return nil
	}
	return c.answer(ctx, code, out)
}

func (c *call) setOptions(opts runtime.Object, dryRun []string, manager string) {
	c.options, c.dryRun = opts, len(dryRun) > 0
	c.fieldManager = managerOrAgent(manager, c.r.UserAgent())
}

func invalidOptions(kind string, errs field.ErrorList) error {
	return api.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
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
	return c.answer(ctx, codeOf(created), out)
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
	if c.name == "" {
		return errNoName
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
	return c.answer(ctx, codeOf(created), out)
}

// patchAsUpdate returns a patch's options as admission sees them.
func patchAsUpdate(opts *metav1.PatchOptions) *metav1.UpdateOptions {
	return &metav1.UpdateOptions{DryRun: opts.DryRun, FieldManager: opts.FieldManager, FieldValidation: opts.FieldValidation}
}

func patchType(r *http.Request) (types.PatchType, error) {
	media := mediaOf(r.Header.Get("Content-Type"))
	switch kind := types.PatchType(media); kind {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType:
		return kind, nil
	}
	return "", errUnsupported
}

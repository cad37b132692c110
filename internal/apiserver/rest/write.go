package rest

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
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/resource"
)

// body reads and decodes the request's object, in the version of the path.
func (c *Call) body(validation string) (runtime.Object, error) {
	media, err := wire.ContentType(c.R)
	if err != nil {
		return nil, err
	}
	data, err := wire.ReadBody(c.R)
	if err != nil {
		return nil, err
	}
	var obj runtime.Object
	if c.HasCustomBody() {
		obj, err = c.DecodeCustom(media, data, validation)
	} else {
		obj, err = wire.DecodeBody(media, data, c.GVK, validation, c.Warn)
	}
	if err == nil {
		resource.DefaultBody(obj)
		wire.RecordRequest(wire.RecordOf(c.W), c.auditForm(obj), c.GVK)
	}
	return obj, err
}

func (c *Call) serveCreate(ctx context.Context) error {
	opts := &metav1.CreateOptions{}
	err := query(c, opts, func(v *url.Values, o *metav1.CreateOptions) error {
		return metav1.Convert_url_Values_To_v1_CreateOptions(v, o, nil)
	})
	if err != nil {
		return err
	}
	if errs := metav1validation.ValidateCreateOptions(opts); len(errs) > 0 {
		return InvalidOptions("CreateOptions", errs)
	}
	obj, err := c.body(opts.FieldValidation)
	if err != nil {
		return err
	}
	c.setOptions(opts, opts.DryRun, opts.FieldManager)
	out, err := c.CreateAny(ctx, obj)
	if err != nil {
		return err
	}
	code := http.StatusCreated
	if status, ok := out.(*metav1.Status); ok {
		wire.RecordStatus(wire.RecordOf(c.W), status)
		wire.RespondAs(c.W, code, c.format, status, wire.StatusKind)
		return nil
	}
	return c.answer(ctx, code, out)
}

func (c *Call) setOptions(opts runtime.Object, dryRun []string, manager string) {
	c.Options, c.DryRun = opts, len(dryRun) > 0
	c.FieldManager = registry.ManagerOrAgent(manager, c.R.UserAgent())
}

// InvalidOptions returns the error for invalid options of the given kind.
func InvalidOptions(kind string, errs field.ErrorList) error {
	return api.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

func (c *Call) serveUpdate(ctx context.Context) error {
	opts := &metav1.UpdateOptions{}
	err := query(c, opts, func(v *url.Values, o *metav1.UpdateOptions) error {
		return metav1.Convert_url_Values_To_v1_UpdateOptions(v, o, nil)
	})
	if err != nil {
		return err
	}
	if errs := metav1validation.ValidateUpdateOptions(opts); len(errs) > 0 {
		return InvalidOptions("UpdateOptions", errs)
	}
	obj, err := c.body(opts.FieldValidation)
	if err != nil {
		return err
	}
	c.setOptions(opts, opts.DryRun, opts.FieldManager)
	out, created, err := c.ReplaceAny(ctx, obj)
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

func (c *Call) servePatch(ctx context.Context) error {
	opts := &metav1.PatchOptions{}
	err := query(c, opts, func(v *url.Values, o *metav1.PatchOptions) error {
		return metav1.Convert_url_Values_To_v1_PatchOptions(v, o, nil)
	})
	if err != nil {
		return err
	}
	kind, err := patchType(c.R)
	if c.Endpoint.Custom != nil && (err != nil || kind == types.StrategicMergePatchType) {
		return verb.ErrUnsupportedCustomPatch
	}
	if err != nil {
		return err
	}
	if c.Name == "" {
		return errNameRequired
	}
	data, err := wire.ReadBody(c.R)
	if err != nil {
		return err
	}
	if errs := metav1validation.ValidatePatchOptions(opts, kind); len(errs) > 0 {
		return InvalidOptions("PatchOptions", errs)
	}
	c.setOptions(PatchAsUpdate(opts), opts.DryRun, opts.FieldManager)
	wire.RecordPatch(wire.RecordOf(c.W), data)
	p := verb.PatchRequest{Kind: kind, Data: data, Force: opts.Force != nil && *opts.Force, Validation: opts.FieldValidation}
	out, created, err := c.PatchAny(ctx, p)
	if err != nil {
		return err
	}
	return c.answer(ctx, codeOf(created), out)
}

// PatchAsUpdate returns a patch's options as admission sees them.
func PatchAsUpdate(opts *metav1.PatchOptions) *metav1.UpdateOptions {
	return &metav1.UpdateOptions{DryRun: opts.DryRun, FieldManager: opts.FieldManager, FieldValidation: opts.FieldValidation}
}

func patchType(r *http.Request) (types.PatchType, error) {
	media := wire.MediaOf(r.Header.Get("Content-Type"))
	switch kind := types.PatchType(media); kind {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType:
		return kind, nil
	}
	return "", verb.ErrUnsupported
}

package local

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientdiscovery "k8s.io/client-go/discovery"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/rest"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

// localClient is the API for a component of this process: the same pipeline as over HTTP, by
// function call.
type localClient struct {
	from  *Clients
	user  auth.User
	fence *store.Fence // of all writes; nil means none
	views client.Views
}

// operation starts an operation if the user is authorized for it.
func (c *localClient) operation(ctx context.Context, action string, res schema.GroupVersionResource, namespace, name string, subresource []string) (*verb.Operation, error) {
	if err := c.catchUp(ctx, action); err != nil {
		return nil, err
	}
	op, a, err := c.request(ctx, action, res, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	return op, c.from.Engine.Authorize(ctx, a)
}

// catchUp brings the caches to the newest state of all servers before a component's write. The
// server's own writes belong to a request that has caught up, or need no admission.
func (c *localClient) catchUp(ctx context.Context, action string) error {
	switch action {
	case "create", "update", "patch", "delete", "deletecollection":
		if c.user.Name != auth.UserAPIServer {
			return c.from.Engine.Kinds.Shared.CatchUp(ctx)
		}
	}
	return nil
}

// selecting is operation for a list, watch or deletecollection. The selectors are part of the
// authorization: a user may be allowed a single object, or only the objects that a selector
// matches.
func (c *localClient) selecting(ctx context.Context, action string, res schema.GroupVersionResource, namespace, fieldSelector, labelSelector string) (*verb.Operation, error) {
	if err := c.catchUp(ctx, action); err != nil {
		return nil, err
	}
	op, a, err := c.request(ctx, action, res, namespace, wire.NameFromSelector(fieldSelector), nil)
	if err != nil {
		return nil, err
	}
	a.FieldSelector, a.LabelSelector = fieldSelector, labelSelector
	return op, c.from.Engine.Authorize(ctx, a)
}

func (c *localClient) request(ctx context.Context, action string, res schema.GroupVersionResource, namespace, name string, subresource []string) (*verb.Operation, auth.Attributes, error) {
	e, ok := c.from.Engine.Kinds.Find(res)
	if !ok && c.from.Engine.Kinds.Shared.CatchUp(ctx) == nil {
		e, ok = c.from.Engine.Kinds.Find(res) // defined through another server
	}
	if !ok {
		return nil, auth.Attributes{}, apierrors.NewNotFound(res.GroupResource(), name)
	}
	op := &verb.Operation{
		Engine: c.from.Engine, Endpoint: e, User: c.user, Verb: action, Namespace: namespace, Name: name, GVK: e.GVK,
		FieldManager: registry.ComponentManager(c.user.Name), Warn: func(string) {},
	}
	if len(subresource) > 0 {
		op.Subresource = subresource[0]
		sub, ok := e.Kind.Subresource(op.Subresource)
		if !ok {
			return nil, auth.Attributes{}, wire.ErrPathNotFound
		}
		if sub.Kind.GroupKind() != e.GVK.GroupKind() {
			op.GVK = sub.Kind
		}
	}
	if !e.Allows(action, op.Subresource) {
		return nil, auth.Attributes{}, wire.ErrMethodNotAllowed
	}
	if !e.Kind.Namespaced {
		op.Namespace = ""
	}
	a := auth.Attributes{User: c.user, Verb: action, Namespace: op.Namespace, Group: res.Group, Version: res.Version,
		Resource: res.Resource, Subresource: op.Subresource, Name: name}
	if res.Resource == "namespaces" && res.Group == "" {
		a.Namespace = name // as in its path: /api/v1/namespaces/NAME
	}
	return op, a, nil
}

func (c *localClient) Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, subresource ...string) (runtime.Object, error) {
	op, err := c.operation(ctx, "get", res, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	if obj, handled, err := op.VirtualGet(ctx, &opts); handled {
		return obj, wire.AsStatusError(err)
	}
	entry, err := op.Get(ctx, opts.ResourceVersion)
	if err != nil {
		return nil, wire.AsStatusError(err)
	}
	obj, err := op.Versioned(op.Endpoint.ObjectOf(entry))
	if err != nil {
		return nil, wire.AsStatusError(err)
	}
	return obj.DeepCopyObject(), nil
}

func (c *localClient) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	op, err := c.selecting(ctx, "list", res, namespace, opts.FieldSelector, opts.LabelSelector)
	if err != nil {
		return nil, err
	}
	req, err := op.Endpoint.NewListRequest(opts)
	if err != nil {
		return nil, err
	}
	if objs, handled, err := op.VirtualList(ctx, req); handled {
		if err != nil {
			return nil, wire.AsStatusError(err)
		}
		return op.Endpoint.ListOf(objs, metav1.ListMeta{})
	}
	p, err := op.List(ctx, req)
	if err != nil {
		return nil, wire.AsStatusError(err)
	}
	return op.Endpoint.ListObject(p)
}

func (c *localClient) Create(ctx context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, opts metav1.CreateOptions, subresource ...string) (runtime.Object, error) {
	name := ""
	if acc, err := meta.Accessor(obj); err == nil && len(subresource) > 0 {
		name = acc.GetName()
	}
	return c.create(ctx, res, namespace, name, obj, opts, subresource)
}

func (c *localClient) CreateSub(ctx context.Context, res schema.GroupVersionResource, namespace, name, subresource string, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	return c.create(ctx, res, namespace, name, obj, opts, []string{subresource})
}

func (c *localClient) create(ctx context.Context, res schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource []string) (runtime.Object, error) {
	op, err := c.operation(ctx, "create", res, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateCreateOptions(&opts); len(errs) > 0 {
		return nil, rest.InvalidOptions("CreateOptions", errs)
	}
	op.SetOptions(&opts, opts.DryRun, opts.FieldManager)
	obj, err = op.CopyOf(obj)
	if err != nil {
		return nil, err
	}
	out, err := op.Versioned(op.CreateAny(ctx, obj))
	return out, wire.AsStatusError(err)
}

func (c *localClient) Update(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, opts metav1.UpdateOptions, subresource ...string) (runtime.Object, error) {
	acc, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	op, err := c.operation(ctx, "update", res, acc.GetNamespace(), acc.GetName(), subresource)
	if err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateUpdateOptions(&opts); len(errs) > 0 {
		return nil, rest.InvalidOptions("UpdateOptions", errs)
	}
	op.SetOptions(&opts, opts.DryRun, opts.FieldManager)
	obj, err = op.CopyOf(obj)
	if err != nil {
		return nil, err
	}
	out, _, err := op.ReplaceAny(ctx, obj)
	out, err = op.Versioned(out, err)
	return out, wire.AsStatusError(err)
}

func (c *localClient) Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresource ...string) (runtime.Object, error) {
	op, err := c.operation(ctx, "patch", res, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	if pt == types.ApplyYAMLPatchType && opts.FieldManager == "" {
		opts.FieldManager = op.FieldManager
	}
	if errs := metav1validation.ValidatePatchOptions(&opts, pt); len(errs) > 0 {
		return nil, rest.InvalidOptions("PatchOptions", errs)
	}
	op.SetOptions(rest.PatchAsUpdate(&opts), opts.DryRun, opts.FieldManager)
	out, _, err := op.PatchAny(ctx, verb.PatchRequest{Kind: pt, Data: data, Force: opts.Force != nil && *opts.Force, Validation: opts.FieldValidation})
	out, err = op.Versioned(out, err)
	return out, wire.AsStatusError(err)
}

func (c *localClient) Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	op, err := c.operation(ctx, "delete", res, namespace, name, nil)
	if err != nil {
		return err
	}
	op.Options, op.DryRun = &opts, len(opts.DryRun) > 0
	_, _, err = op.Delete(ctx, &opts)
	return wire.AsStatusError(err)
}

func (c *localClient) DeleteCollection(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	op, err := c.selecting(ctx, "deletecollection", res, namespace, list.FieldSelector, list.LabelSelector)
	if err != nil {
		return err
	}
	req, err := op.Endpoint.NewListRequest(list)
	if err != nil {
		return err
	}
	op.Options, op.DryRun = &opts, len(opts.DryRun) > 0
	_, err = op.DeleteCollection(ctx, &opts, req)
	return wire.AsStatusError(err)
}

// Discovery lists the served resources. It fails for group versions whose extension servers do not
// answer.
func (c *localClient) Discovery(context.Context) ([]*metav1.APIResourceList, error) {
	lists, stale := c.from.Discovery.Lists()
	if len(stale) == 0 {
		return lists, nil
	}
	failed := &clientdiscovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{}}
	for _, gv := range stale {
		failed.Groups[gv] = fmt.Errorf("stale GroupVersion discovery: %v", gv)
	}
	return lists, failed
}

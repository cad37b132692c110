package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientdiscovery "k8s.io/client-go/discovery"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// localClient is the API for a component of this process: the same pipeline as over HTTP, by
// function call.
type localClient struct {
	from  *clients
	user  auth.User
	views client.Views
}

// operation starts an operation if the user is authorized for it.
func (c *localClient) operation(ctx context.Context, action string, res schema.GroupVersionResource, namespace, name string, subresource []string) (*operation, error) {
	op, a, err := c.request(action, res, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	return op, c.from.engine.authorize(ctx, a)
}

// selecting is operation for a list, watch or deletecollection. The selectors are part of the
// authorization: a user may be allowed a single object, or only the objects that a selector
// matches.
func (c *localClient) selecting(ctx context.Context, action string, res schema.GroupVersionResource, namespace, fieldSelector, labelSelector string) (*operation, error) {
	op, a, err := c.request(action, res, namespace, selectedName(fieldSelector), nil)
	if err != nil {
		return nil, err
	}
	a.FieldSelector, a.LabelSelector = fieldSelector, labelSelector
	return op, c.from.engine.authorize(ctx, a)
}

func (c *localClient) request(action string, res schema.GroupVersionResource, namespace, name string, subresource []string) (*operation, auth.Attributes, error) {
	e, ok := c.from.engine.kinds.find(res)
	if !ok {
		return nil, auth.Attributes{}, apierrors.NewNotFound(res.GroupResource(), name)
	}
	op := &operation{
		engine: c.from.engine, endpoint: e, user: c.user, verb: action, namespace: namespace, name: name, gvk: e.gvk,
		fieldManager: componentManager(c.user.Name), warn: func(string) {},
	}
	if len(subresource) > 0 {
		op.subresource = subresource[0]
		sub, ok := e.kind.Subresource(op.subresource)
		if !ok {
			return nil, auth.Attributes{}, errNoSuchPath
		}
		if sub.Kind.GroupKind() != e.gvk.GroupKind() {
			op.gvk = sub.Kind
		}
	}
	if !e.allows(action, op.subresource) {
		return nil, auth.Attributes{}, errMethod
	}
	if !e.kind.Namespaced {
		op.namespace = ""
	}
	a := auth.Attributes{User: c.user, Verb: action, Namespace: op.namespace, Group: res.Group, Version: res.Version,
		Resource: res.Resource, Subresource: op.subresource, Name: name}
	if res.Resource == "namespaces" && res.Group == "" {
		a.Namespace = name // as in its path: /api/v1/namespaces/NAME
	}
	return op, a, nil
}

// componentManager returns the field manager of upstream's component with that user name.
func componentManager(user string) string {
	switch {
	case strings.HasPrefix(user, "system:node:"):
		return "kubelet"
	case strings.HasPrefix(user, "system:serviceaccount:kube-system:"):
		return "kube-controller-manager"
	case user == auth.UserAPIServer:
		return "kube-apiserver"
	}
	return managerOrAgent("", strings.TrimPrefix(user, "system:"))
}

// managed sets the operation's options and, unless manager is empty, its field manager.
func (op *operation) managed(opts runtime.Object, dryRun []string, manager string) {
	op.options, op.dryRun = opts, len(dryRun) > 0
	if manager != "" {
		op.fieldManager = manager
	}
}

func (c *localClient) Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, subresource ...string) (runtime.Object, error) {
	op, err := c.operation(ctx, "get", res, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	if obj, handled, err := op.virtualGet(ctx, &opts); handled {
		return obj, asStatusError(err)
	}
	entry, err := op.get(ctx, opts.ResourceVersion)
	if err != nil {
		return nil, asStatusError(err)
	}
	obj, err := op.versioned(op.endpoint.objectOf(entry))
	if err != nil {
		return nil, asStatusError(err)
	}
	return obj.DeepCopyObject(), nil
}

// versioned converts a result to the requested version.
func (op *operation) versioned(obj runtime.Object, err error) (runtime.Object, error) {
	if err != nil || op.gvk != op.endpoint.gvk {
		return obj, err
	}
	return op.endpoint.fromHub(obj)
}

func (c *localClient) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	op, err := c.selecting(ctx, "list", res, namespace, opts.FieldSelector, opts.LabelSelector)
	if err != nil {
		return nil, err
	}
	req, err := op.endpoint.newListRequest(opts)
	if err != nil {
		return nil, err
	}
	if objs, handled, err := op.virtualList(ctx, req); handled {
		if err != nil {
			return nil, asStatusError(err)
		}
		return op.endpoint.listOf(objs, metav1.ListMeta{})
	}
	p, err := op.list(ctx, req)
	if err != nil {
		return nil, asStatusError(err)
	}
	return op.endpoint.listObject(p)
}

// listObject returns a page as the kind's list object. Its items are copies.
func (e *endpoint) listObject(p *page) (runtime.Object, error) {
	objs := make([]runtime.Object, len(p.entries))
	for i, entry := range p.entries {
		obj, err := e.objectOf(entry)
		if err != nil {
			return nil, err
		}
		if obj, err = e.fromHub(obj); err != nil {
			return nil, err
		}
		objs[i] = obj.DeepCopyObject()
	}
	return e.listOf(objs, p.meta())
}

// listOf returns the kind's list object of objects in the endpoint's version.
func (e *endpoint) listOf(objs []runtime.Object, m metav1.ListMeta) (runtime.Object, error) {
	list, err := e.newList()
	if err != nil {
		return nil, err
	}
	if err := meta.SetList(list, objs); err != nil {
		return nil, fmt.Errorf("list of %s: %w", e.gvr, err)
	}
	acc, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	acc.SetResourceVersion(m.ResourceVersion)
	acc.SetContinue(m.Continue)
	acc.SetRemainingItemCount(m.RemainingItemCount)
	return list, nil
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
		return nil, invalidOptions("CreateOptions", errs)
	}
	op.managed(&opts, opts.DryRun, opts.FieldManager)
	obj, err = op.take(obj)
	if err != nil {
		return nil, err
	}
	out, err := op.versioned(op.createAny(ctx, obj))
	return out, asStatusError(err)
}

// take copies a caller's object and checks that it is of the operation's kind.
func (op *operation) take(obj runtime.Object) (runtime.Object, error) {
	obj = obj.DeepCopyObject()
	if op.takesCustom() {
		return op.takeCustom(obj)
	}
	if u, ok := obj.(runtime.Unstructured); ok {
		typed, err := objectConvertor{}.typed(u, op.gvk)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		obj = typed
	}
	clearKind(obj)
	got, err := kindOf(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !slices.Contains(got, op.gvk) {
		return nil, matchKind(got[0], op.gvk)
	}
	return obj, nil
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
		return nil, invalidOptions("UpdateOptions", errs)
	}
	op.managed(&opts, opts.DryRun, opts.FieldManager)
	obj, err = op.take(obj)
	if err != nil {
		return nil, err
	}
	out, _, err := op.replaceAny(ctx, obj)
	out, err = op.versioned(out, err)
	return out, asStatusError(err)
}

func (c *localClient) Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresource ...string) (runtime.Object, error) {
	op, err := c.operation(ctx, "patch", res, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	if pt == types.ApplyYAMLPatchType && opts.FieldManager == "" {
		opts.FieldManager = op.fieldManager
	}
	if errs := metav1validation.ValidatePatchOptions(&opts, pt); len(errs) > 0 {
		return nil, invalidOptions("PatchOptions", errs)
	}
	op.managed(patchAsUpdate(&opts), opts.DryRun, opts.FieldManager)
	out, _, err := op.patchAny(ctx, patchRequest{kind: pt, data: data, force: opts.Force != nil && *opts.Force, validation: opts.FieldValidation})
	out, err = op.versioned(out, err)
	return out, asStatusError(err)
}

func (c *localClient) Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	op, err := c.operation(ctx, "delete", res, namespace, name, nil)
	if err != nil {
		return err
	}
	op.options, op.dryRun = &opts, len(opts.DryRun) > 0
	_, _, err = op.delete(ctx, &opts)
	return asStatusError(err)
}

func (c *localClient) DeleteCollection(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	op, err := c.selecting(ctx, "deletecollection", res, namespace, list.FieldSelector, list.LabelSelector)
	if err != nil {
		return err
	}
	req, err := op.endpoint.newListRequest(list)
	if err != nil {
		return err
	}
	op.options, op.dryRun = &opts, len(opts.DryRun) > 0
	_, err = op.deleteCollection(ctx, &opts, req)
	return asStatusError(err)
}

// Discovery lists the served resources. It fails for group versions whose extension servers do not
// answer.
func (c *localClient) Discovery(context.Context) ([]*metav1.APIResourceList, error) {
	lists, stale := c.from.discovery.Lists()
	if len(stale) == 0 {
		return lists, nil
	}
	failed := &clientdiscovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{}}
	for _, gv := range stale {
		failed.Groups[gv] = fmt.Errorf("stale GroupVersion discovery: %v", gv)
	}
	return lists, failed
}

package local

import (
	"context"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/api/discovery"
	"github.com/knarr-project/knarr/internal/apiserver/aggregation"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

// Clients makes clients for components of this process.
type Clients struct {
	Engine    *verb.Engine
	Discovery *discovery.Handler
	Remotes   *aggregation.Aggregator // extension servers
	Audit     *audit.Log              // nil records nothing
}

// Of returns a client for a component, which acts as the given user. Its writes carry the fence,
// unless it is nil.
func (s *Clients) Of(user auth.User, fence *store.Fence) client.Interface {
	local := &localClient{from: s, user: user, fence: fence}
	return &routedClient{localClient: local, extension: sync.OnceValues(func() (client.Interface, error) {
		return client.Remote(&rest.Config{Host: "https://extension.invalid", QPS: -1, Transport: extensionTransport{s, user}})
	})}
}

// routedClient also reaches the kinds of extension servers, for components that follow discovery,
// such as the garbage collector and the namespace controller.
type routedClient struct {
	*localClient
	extension func() (client.Interface, error)
}

// writer is of for a write. The context carries the fence to the commit. An extension server keeps
// its objects in a store of its own, so the fence is checked before it is called.
func (c *routedClient) writer(ctx context.Context, res schema.GroupVersionResource) (context.Context, client.Interface, error) {
	to, err := c.of(res)
	if err != nil || c.fence == nil {
		return ctx, to, err
	}
	if to != client.Interface(c.localClient) {
		return ctx, to, wire.AsStatusError(wire.StoreError(c.fence.Check(ctx, c.from.Engine.Kinds.Shared.Home.Store, 0)))
	}
	return store.WithFence(ctx, c.fence), to, nil
}

// of returns the client for a group version.
func (c *routedClient) of(res schema.GroupVersionResource) (client.Interface, error) {
	if _, remote := c.from.Remotes.Serves(res.GroupVersion()); remote {
		return c.extension()
	}
	return c.localClient, nil
}

// extensionTransport sends requests of this process to extension servers, authorized like all
// others.
type extensionTransport struct {
	from *Clients
	user auth.User
}

func (t extensionTransport) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	defer func() {
		if err != nil && req.Body != nil {
			_ = req.Body.Close() // as the contract of http.RoundTripper requires
		}
	}()
	remote, ok := t.from.Remotes.Find(req.URL.Path)
	if !ok {
		return nil, wire.ErrPathNotFound
	}
	if err := t.from.Engine.Authorize(req.Context(), wire.RequestAttributes(t.user, wire.ParseRequest(req))); err != nil {
		return nil, err
	}
	if !remote.Available() {
		return nil, apierrors.NewServiceUnavailable("service unavailable")
	}
	return remote.Send(req, t.user)
}

func (c *routedClient) Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, subresource ...string) (runtime.Object, error) {
	to, err := c.of(res)
	if err != nil {
		return nil, err
	}
	ctx, rec, err := c.record(ctx, "get", res, namespace, name, subresource, nil)
	if err != nil {
		return nil, err
	}
	out, err := to.Get(ctx, res, namespace, name, opts, subresource...)
	recordResult(rec, out, err)
	return out, err
}

func (c *routedClient) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	to, err := c.of(res)
	if err != nil {
		return nil, err
	}
	ctx, rec, err := c.record(ctx, "list", res, namespace, "", nil, nil)
	if err != nil {
		return nil, err
	}
	out, err := to.List(ctx, res, namespace, opts)
	recordResult(rec, out, err)
	return out, err
}

func (c *routedClient) Create(ctx context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, opts metav1.CreateOptions, subresource ...string) (runtime.Object, error) {
	ctx, to, err := c.writer(ctx, res)
	if err != nil {
		return nil, err
	}
	ctx, rec, err := c.record(ctx, "create", res, namespace, "", subresource, obj)
	if err != nil {
		return nil, err
	}
	out, err := to.Create(ctx, res, namespace, obj, opts, subresource...)
	recordResult(rec, out, err)
	return out, err
}

func (c *routedClient) CreateSub(ctx context.Context, res schema.GroupVersionResource, namespace, name, subresource string, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	ctx, to, err := c.writer(ctx, res)
	if err != nil {
		return nil, err
	}
	ctx, rec, err := c.record(ctx, "create", res, namespace, name, []string{subresource}, obj)
	if err != nil {
		return nil, err
	}
	out, err := to.CreateSub(ctx, res, namespace, name, subresource, obj, opts)
	recordResult(rec, out, err)
	return out, err
}

func (c *routedClient) Update(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, opts metav1.UpdateOptions, subresource ...string) (runtime.Object, error) {
	ctx, to, err := c.writer(ctx, res)
	if err != nil {
		return nil, err
	}
	ctx, rec, err := c.record(ctx, "update", res, namespaceOf(obj), nameOf(obj), subresource, obj)
	if err != nil {
		return nil, err
	}
	out, err := to.Update(ctx, res, obj, opts, subresource...)
	recordResult(rec, out, err)
	return out, err
}

func (c *routedClient) Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresource ...string) (runtime.Object, error) {
	ctx, to, err := c.writer(ctx, res)
	if err != nil {
		return nil, err
	}
	ctx, rec, err := c.record(ctx, "patch", res, namespace, name, subresource, nil)
	if err != nil {
		return nil, err
	}
	wire.RecordPatch(rec, data)
	out, err := to.Patch(ctx, res, namespace, name, pt, data, opts, subresource...)
	recordResult(rec, out, err)
	return out, err
}

func (c *routedClient) Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	ctx, to, err := c.writer(ctx, res)
	if err != nil {
		return err
	}
	ctx, rec, err := c.record(ctx, "delete", res, namespace, name, nil, nil)
	if err != nil {
		return err
	}
	err = to.Delete(ctx, res, namespace, name, opts)
	recordResult(rec, nil, err)
	return err
}

func (c *routedClient) DeleteCollection(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	ctx, to, err := c.writer(ctx, res)
	if err != nil {
		return err
	}
	ctx, rec, err := c.record(ctx, "deletecollection", res, namespace, "", nil, nil)
	if err != nil {
		return err
	}
	err = to.DeleteCollection(ctx, res, namespace, opts, list)
	recordResult(rec, nil, err)
	return err
}

func (c *routedClient) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	to, err := c.of(res)
	if err != nil {
		return nil, err
	}
	return to.View(ctx, res, scope)
}

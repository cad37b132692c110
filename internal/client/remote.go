package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/insight/because"
)

// remote is the Interface over HTTPS, to knarr's API server or to any other one of Kubernetes.
// Built-in kinds are Go types in protobuf; all others are Unstructured in JSON.
type remote struct {
	config   *rest.Config
	http     *http.Client
	dynamic  dynamic.Interface
	metadata metadata.Interface
	views    *Views
	// opens the Views: this client itself, or the client whose Views it shares
	viewer *remote

	mu    sync.Mutex
	typed map[schema.GroupVersion]*rest.RESTClient
}

// version is the version in which options are encoded; they are equal in all versions.
var version = schema.GroupVersion{Version: "v1"}

// Remote makes a client for the API server at a URL. It keeps the caller's rate limit. The default
// is no limit, since the server has flow control.
func Remote(config *rest.Config) (Interface, error) {
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		config.WarningHandler = rest.NoWarnings{} // warnings are for users
	}
	config.Wrap(because.Transport)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	r := &remote{config: config, http: httpClient, views: &Views{}, typed: map[schema.GroupVersion]*rest.RESTClient{}}
	r.viewer = r
	if r.dynamic, err = dynamic.NewForConfigAndClient(config, httpClient); err != nil {
		return nil, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	if r.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), httpClient); err != nil {
		return nil, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	return r, nil
}

// RemoteSharing makes a client that uses the Views of another one. Its own identity writes and
// reads single objects; the other's identity opens Views and asks for discovery. The Views show
// this client's writes when they return. Upstream's controllers share the informers of
// system:kube-controller-manager in the same way, so the bootstrap roles fit.
func RemoteSharing(views Interface, config *rest.Config) (Interface, error) {
	viewer, ok := views.(*remote)
	if !ok {
		return nil, fmt.Errorf("cannot share the views of a %T with a client of %s", views, config.Host)
	}
	c, err := Remote(config)
	if err != nil {
		return nil, err
	}
	r := c.(*remote)
	r.views, r.viewer = viewer.views, viewer.viewer
	return r, nil
}

// rest returns the client for a kind with a Go type in the requested version; false means that
// there is none.
func (r *remote) rest(res schema.GroupVersionResource) (*rest.RESTClient, bool, error) {
	kind, ok := api.ByResource(res.GroupResource())
	if !ok || !api.Scheme.Recognizes(res.GroupVersion().WithKind(kind.Kind.Kind)) {
		return nil, false, nil
	}
	gv := res.GroupVersion()
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.typed[gv]; ok {
		return c, true, nil
	}
	config := rest.CopyConfig(r.config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = api.Codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c, err := rest.RESTClientForConfigAndClient(config, r.http)
	if err != nil {
		return nil, false, fmt.Errorf("client of %s for %s: %w", r.config.Host, gv, err)
	}
	r.typed[gv] = c
	return c, true, nil
}

// path sets the resource, the namespace and the name of a request.
func path(req *rest.Request, res schema.GroupVersionResource, namespace, name string, subresource []string) *rest.Request {
	req = req.NamespaceIfScoped(namespace, namespace != "").Resource(res.Resource)
	if name != "" {
		req = req.Name(name)
	}
	return req.SubResource(subresource...)
}

func (r *remote) in(res schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return r.dynamic.Resource(res)
	}
	return r.dynamic.Resource(res).Namespace(namespace)
}

func (r *remote) Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, subresource ...string) (runtime.Object, error) {
	c, typed, err := r.rest(res)
	if err != nil {
		return nil, err
	}
	if !typed {
		return plain(r.in(res, namespace).Get(ctx, name, opts, subresource...))
	}
	return path(c.Get(), res, namespace, name, subresource).SpecificallyVersionedParams(&opts, metav1.ParameterCodec, version).Do(ctx).Get()
}

func (r *remote) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	c, typed, err := r.rest(res)
	if err != nil {
		return nil, err
	}
	if !typed {
		list, err := r.in(res, namespace).List(ctx, opts)
		if err != nil {
			return nil, err
		}
		return list, nil
	}
	return path(c.Get(), res, namespace, "", nil).SpecificallyVersionedParams(&opts, metav1.ParameterCodec, version).Do(ctx).Get()
}

func (r *remote) Create(ctx context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, opts metav1.CreateOptions, subresource ...string) (runtime.Object, error) {
	name := ""
	if acc, err := meta.Accessor(obj); err == nil && len(subresource) > 0 {
		name = acc.GetName()
	}
	return r.create(ctx, res, namespace, name, obj, opts, subresource)
}

func (r *remote) CreateSub(ctx context.Context, res schema.GroupVersionResource, namespace, name, subresource string, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	return r.create(ctx, res, namespace, name, obj, opts, []string{subresource})
}

func (r *remote) create(ctx context.Context, res schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource []string) (runtime.Object, error) {
	c, typed, err := r.rest(res)
	if err != nil {
		return nil, err
	}
	var out runtime.Object
	if typed {
		out, err = path(c.Post(), res, namespace, name, subresource).SpecificallyVersionedParams(&opts, metav1.ParameterCodec, version).
			Body(obj.DeepCopyObject()).Do(ctx).Get() // a copy, because encoding sets its kind
	} else {
		var u *unstructured.Unstructured
		if u, err = asUnstructured(obj); err != nil {
			return nil, err
		}
		if len(subresource) > 0 {
			u.SetName(name)
		}
		out, err = plain(r.in(res, namespace).Create(ctx, u, opts, subresource...))
	}
	if err != nil || len(opts.DryRun) > 0 {
		return out, err
	}
	if len(subresource) > 0 {
		r.waitSubresource(ctx, res, namespace, name, subresource[0], obj, out)
	} else {
		r.waitShown(ctx, res, out)
	}
	return out, nil
}

func (r *remote) Update(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, opts metav1.UpdateOptions, subresource ...string) (runtime.Object, error) {
	acc, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	c, typed, err := r.rest(res)
	if err != nil {
		return nil, err
	}
	var out runtime.Object
	if typed {
		out, err = path(c.Put(), res, acc.GetNamespace(), acc.GetName(), subresource).SpecificallyVersionedParams(&opts, metav1.ParameterCodec, version).
			Body(obj.DeepCopyObject()).Do(ctx).Get()
	} else {
		var u *unstructured.Unstructured
		if u, err = asUnstructured(obj); err != nil {
			return nil, err
		}
		out, err = plain(r.in(res, acc.GetNamespace()).Update(ctx, u, opts, subresource...))
	}
	if err == nil && len(opts.DryRun) == 0 {
		r.waitShown(ctx, res, out)
	}
	return out, err
}

func (r *remote) Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresource ...string) (runtime.Object, error) {
	if pt == types.ApplyYAMLPatchType && opts.FieldManager == "" {
		opts.FieldManager = "knarr"
	}
	c, typed, err := r.rest(res)
	if err != nil {
		return nil, err
	}
	var out runtime.Object
	if typed {
		out, err = path(c.Patch(pt), res, namespace, name, subresource).SpecificallyVersionedParams(&opts, metav1.ParameterCodec, version).
			Body(data).Do(ctx).Get()
	} else {
		out, err = plain(r.in(res, namespace).Patch(ctx, name, pt, data, opts, subresource...))
	}
	if err == nil && len(opts.DryRun) == 0 {
		r.waitShown(ctx, res, out)
	}
	return out, err
}

func (r *remote) Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	c, typed, err := r.rest(res)
	if err != nil {
		return err
	}
	if !typed {
		if err := r.in(res, namespace).Delete(ctx, name, opts); err != nil {
			return err
		}
		r.waitDeleted(ctx, res, namespace, name, nil, opts)
		return nil
	}
	out, err := path(c.Delete(), res, namespace, name, nil).Body(&opts).Do(ctx).Get()
	if err != nil {
		return err
	}
	r.waitDeleted(ctx, res, namespace, name, out, opts)
	return nil
}

func (r *remote) DeleteCollection(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	c, typed, err := r.rest(res)
	if err != nil {
		return err
	}
	if !typed {
		return r.in(res, namespace).DeleteCollection(ctx, opts, list)
	}
	out, err := path(c.Delete(), res, namespace, "", nil).SpecificallyVersionedParams(&list, metav1.ParameterCodec, version).Body(&opts).Do(ctx).Get()
	if err != nil || !meta.IsListType(out) {
		return err
	}
	return meta.EachListItem(out, func(obj runtime.Object) error {
		if acc, err := meta.Accessor(obj); err == nil {
			r.waitDeleted(ctx, res, acc.GetNamespace(), acc.GetName(), obj, opts)
		}
		return nil
	})
}

// Discovery lists the served resources. It returns an error for the group versions whose servers do
// not answer.
func (r *remote) Discovery(ctx context.Context) ([]*metav1.APIResourceList, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(r.viewer.config, r.viewer.http)
	if err != nil {
		return nil, err
	}
	_, lists, err := d.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	return lists, cmp.Or(ctx.Err(), err)
}

// plain converts u to an interface that is nil if u is nil.
func plain(u *unstructured.Unstructured, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return u, nil
}

func asUnstructured(obj runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	if u.GetKind() == "" {
		if kinds, _, err := api.Scheme.ObjectKinds(obj); err == nil {
			u.SetGroupVersionKind(kinds[0])
		}
	}
	return u, nil
}

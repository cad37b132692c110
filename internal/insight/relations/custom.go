package relations

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/knarr-project/knarr/internal/architecture"
)

// routes are the kinds of routes of the Gateway API, each with its versions, the newest first.
var routes = []struct {
	kind, resource string
	versions       []string
}{
	{"HTTPRoute", "httproutes", []string{"v1", "v1beta1"}},
	{"GRPCRoute", "grpcroutes", []string{"v1"}},
	{"TLSRoute", "tlsroutes", []string{"v1", "v1alpha3", "v1alpha2"}},
	{"TCPRoute", "tcproutes", []string{"v1", "v1alpha2"}},
	{"UDPRoute", "udproutes", []string{"v1", "v1alpha2"}},
}

// readCustom lists the objects of custom resources. A kind without a definition has none. Without
// rights, Components, Systems and traffic are as if there were none, apart from traffic beside
// Components: what it would show must not look unseen.
func (o *Objects) readCustom(ctx context.Context, d dynamic.Interface, namespace string) (unread []string, err error) {
	// All namespaces, since Components may require those of others.
	components, err := listCustom[architecture.Component](ctx, d, architecture.Components, "")
	if apierrors.IsForbidden(err) && namespace != "" {
		components, err = listCustom[architecture.Component](ctx, d, architecture.Components, namespace)
	}
	o.Components = components
	unread = report(unread, "Components", err, false)
	o.Systems, err = listCustom[architecture.System](ctx, d, architecture.Systems, "")
	unread = report(unread, "Systems", err, false)
	traffics, err := listCustom[architecture.Traffic](ctx, d, architecture.Traffics, "")
	unread = report(unread, "Traffics", err, len(components) > 0)
	o.Counted = len(traffics) > 0
	for _, t := range traffics {
		for _, f := range t.Entries {
			if namespace == "" || f.From.Namespace == namespace || f.To.Namespace == namespace {
				o.Flows = append(o.Flows, f)
			}
		}
	}
	if namespace != "" {
		o.Components = within(o.Components, namespace)
	}
	for _, r := range routes {
		for _, version := range r.versions {
			var found []unstructured.Unstructured
			found, err = listAll(ctx, d, schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: version, Resource: r.resource}, namespace)
			for i := range found {
				if e, ok := routeEntry(r.kind, &found[i]); ok {
					o.Ingresses = append(o.Ingresses, e)
				}
			}
			if !apierrors.IsNotFound(err) {
				unread = report(unread, r.kind+"s", err, false)
				break
			}
		}
	}
	return unread, ctx.Err()
}

// within returns the Components of a namespace, and those of others that require them or that they
// require. These keep only their requirements in the namespace.
func within(all []*architecture.Component, namespace string) (out []*architecture.Component) {
	required := map[architecture.ComponentReference]bool{}
	for _, c := range all {
		for _, r := range c.Spec.Requires {
			if c.Namespace == namespace && r.Namespace != "" {
				required[architecture.ComponentReference{Namespace: r.Namespace, Name: r.Component}] = true
			}
		}
	}
	for _, c := range all {
		if c.Namespace == namespace {
			out = append(out, c)
			continue
		}
		beyond := *c
		beyond.Spec.Requires, beyond.Spec.RequiresOutside, beyond.Spec.Exposed = nil, nil, nil
		for _, r := range c.Spec.Requires {
			if r.Namespace == namespace {
				beyond.Spec.Requires = append(beyond.Spec.Requires, r)
			}
		}
		if len(beyond.Spec.Requires) > 0 || required[c.Reference()] {
			out = append(out, &beyond)
		}
	}
	return out
}

// report names a kind that could not be read. A missing definition is none of them, and neither are
// missing rights unless they matter.
func report(unread []string, kind string, err error, rightsMatter bool) []string {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !rightsMatter {
		return unread
	}
	return append(unread, fmt.Sprintf("%s: %v", kind, err))
}

func listCustom[T any](ctx context.Context, d dynamic.Interface, r schema.GroupVersionResource, namespace string) (out []*T, err error) {
	found, err := listAll(ctx, d, r, namespace)
	for i := range found {
		object := new(T)
		if err := architecture.From(&found[i], object); err != nil {
			return out, err
		}
		out = append(out, object)
	}
	return out, err
}

func listAll(ctx context.Context, d dynamic.Interface, r schema.GroupVersionResource, namespace string) (out []unstructured.Unstructured, err error) {
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := d.Resource(r).Namespace(namespace).List(ctx, opts)
		if err != nil {
			return out, err
		}
		out = append(out, page.Items...)
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return out, nil
		}
	}
}

// routeEntry returns the way in that a route of the Gateway API is. A route that only Services are
// the parents of is inside of a mesh, and no way in.
func routeEntry(kind string, u *unstructured.Unstructured) (Entry, bool) {
	var route struct {
		Spec struct {
			ParentRefs []reference `json:"parentRefs"`
			Hostnames  []string    `json:"hostnames"`
			Rules      []struct {
				BackendRefs []reference `json:"backendRefs"`
			} `json:"rules"`
		} `json:"spec"`
	}
	if err := architecture.From(u, &route); err != nil {
		return Entry{}, false
	}
	mesh := len(route.Spec.ParentRefs) > 0 && !slices.ContainsFunc(route.Spec.ParentRefs, func(r reference) bool { return r.Kind != "Service" })
	e := Entry{Object: Object{kind, u.GetNamespace(), u.GetName()}, Hosts: route.Spec.Hostnames}
	for _, rule := range route.Spec.Rules {
		for _, b := range rule.BackendRefs {
			if b.Group != "" || b.Kind != "" && b.Kind != "Service" {
				continue
			}
			if b.Namespace == "" {
				b.Namespace = u.GetNamespace()
			}
			e.Backends = append(e.Backends, Object{"Service", b.Namespace, b.Name})
		}
	}
	return e, !mesh
}

// reference is a reference to an object in a route.
type reference struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

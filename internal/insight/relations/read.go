package relations

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/knarr-project/knarr/internal/architecture"
)

// pageSize is the number of objects of one answer.
const pageSize = 500

// Of derives the graph of a namespace, or of the cluster if it is "", from the objects that the
// client may read.
func Of(ctx context.Context, c *rest.Config, namespace string) (*Graph, error) {
	custom, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	c = rest.CopyConfig(c)
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	set, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	objects, unread, err := Read(ctx, set, custom, namespace)
	if err != nil {
		return nil, err
	}
	g := Derive(objects)
	g.Unread = unread
	slices.Sort(g.Unread)
	return g, nil
}

// Read lists the objects of a namespace, or of all if it is "". A kind that cannot be read is named
// in unread; the error is that of the context. Kinds that the cluster does not have are no errors.
func Read(ctx context.Context, c kubernetes.Interface, d dynamic.Interface, namespace string) (o *Objects, unread []string, err error) {
	o = &Objects{}
	// Connections come first: their ends existed then, so an end that the lists lack is gone.
	if unread, err = o.readCustom(ctx, d, namespace); err != nil {
		return nil, nil, err
	}
	listed := map[string]bool{}
	for _, kind := range []struct {
		name string
		read func() error
	}{
		{"Deployments", func() error { return list(ctx, c.AppsV1().Deployments(namespace).List, &o.Deployments) }},
		{"StatefulSets", func() error { return list(ctx, c.AppsV1().StatefulSets(namespace).List, &o.StatefulSets) }},
		{"DaemonSets", func() error { return list(ctx, c.AppsV1().DaemonSets(namespace).List, &o.DaemonSets) }},
		{"CronJobs", func() error { return list(ctx, c.BatchV1().CronJobs(namespace).List, &o.CronJobs) }},
		{"Jobs", func() error { return list(ctx, c.BatchV1().Jobs(namespace).List, &o.Jobs) }},
		{"Pods", func() error { return list(ctx, c.CoreV1().Pods(namespace).List, &o.Pods) }},
		{"Services", func() error { return list(ctx, c.CoreV1().Services("").List, &o.Services) }},
		{"ConfigMaps", func() error { return list(ctx, c.CoreV1().ConfigMaps(namespace).List, &o.ConfigMaps) }},
		{"Ingresses", func() error {
			var all []networkingv1.Ingress
			err := list(ctx, c.NetworkingV1().Ingresses(namespace).List, &all)
			for i := range all {
				o.Ingresses = append(o.Ingresses, entryOf(&all[i]))
			}
			return err
		}},
	} {
		if err := kind.read(); err != nil {
			unread = append(unread, fmt.Sprintf("%s: %v", kind.name, err))
		} else {
			listed[strings.TrimSuffix(kind.name, "s")] = true
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
	if slices.ContainsFunc(o.Flows, func(f architecture.Flow) bool { return len(f.Addresses) > 0 }) {
		if err := o.readBeyond(ctx, c, namespace); err != nil && !apierrors.IsForbidden(err) {
			unread = append(unread, fmt.Sprintf("EndpointSlices: %v", err))
		}
	}
	o.dropGone(ctx, c, namespace, listed)
	return o, unread, ctx.Err()
}

// byHand selects the EndpointSlices that the control plane does not make from a selector.
const byHand = discoveryv1.LabelManagedBy + "!=endpointslice-controller.k8s.io"

// readBeyond reads which Services have addresses that are no pods'.
func (o *Objects) readBeyond(ctx context.Context, c kubernetes.Interface, namespace string) error {
	var all []discoveryv1.EndpointSlice
	err := list(ctx, func(ctx context.Context, opts metav1.ListOptions) (*discoveryv1.EndpointSliceList, error) {
		opts.LabelSelector = byHand
		return c.DiscoveryV1().EndpointSlices(namespace).List(ctx, opts)
	}, &all)
	o.Beyond = map[string]Object{}
	for i := range all {
		service := Object{"Service", all[i].Namespace, all[i].Labels[discoveryv1.LabelServiceName]}
		if service.Name == "" {
			continue
		}
		for _, e := range all[i].Endpoints {
			for _, text := range e.Addresses {
				// IPv6 has several forms; Traffic has the usual one.
				if address, err := netip.ParseAddr(text); err == nil {
					text = address.Unmap().String()
				}
				// Two Services may have an address: the first by name.
				if known, ok := o.Beyond[text]; !ok || compareObject(service, known) < 0 {
					o.Beyond[text] = service
				}
			}
		}
	}
	return err
}

// list appends all objects of a kind.
func list[L runtime.Object, T any](ctx context.Context, read func(context.Context, metav1.ListOptions) (L, error), to *[]T) error {
	p := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) { return read(ctx, opts) }))
	p.PageSize = pageSize
	return p.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		item, ok := any(obj).(*T)
		if !ok {
			return fmt.Errorf("the list has a %T", obj)
		}
		*to = append(*to, *item)
		return nil
	})
}

func entryOf(in *networkingv1.Ingress) Entry {
	e := Entry{Object: Object{"Ingress", in.Namespace, in.Name}}
	backend := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			e.Backends = append(e.Backends, Object{"Service", in.Namespace, b.Service.Name})
		}
	}
	backend(in.Spec.DefaultBackend)
	for _, r := range in.Spec.Rules {
		if r.Host != "" {
			e.Hosts = append(e.Hosts, r.Host)
		}
		if r.HTTP != nil {
			for i := range r.HTTP.Paths {
				backend(&r.HTTP.Paths[i].Backend)
			}
		}
	}
	return e
}

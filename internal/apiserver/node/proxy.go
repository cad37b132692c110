package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// InsecureTLS is for proxying to pods, whose certificates are not verified.
func InsecureTLS() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// serveProxy forwards the request to a pod, a service or a node.
func (c *connection) serveProxy(ctx context.Context) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(c.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", c.Endpoint.Kind.Singular, c.Name))
	}
	var options runtime.Object
	var find func(ctx context.Context, scheme, port string) (target, error)
	rest := "/" + c.Info.Rest
	switch c.Endpoint.GVR.Resource {
	case "pods":
		options, find = &corev1.PodProxyOptions{Path: rest}, c.podProxy
	case "services":
		options, find = &corev1.ServiceProxyOptions{Path: rest}, c.serviceProxy
	case "nodes":
		options, find = &corev1.NodeProxyOptions{Path: rest}, c.nodeProxy
	default:
		return wire.ErrPathNotFound
	}
	c.Name = name
	if err := c.admitConnect(ctx, options); err != nil {
		return err
	}
	t, err := find(ctx, scheme, port)
	if err != nil {
		return err
	}
	t.location.Path = ""
	if c.Info.HasRest || c.R.URL.Path[len(c.R.URL.Path)-1] == '/' {
		// Without a slash, the handler redirects to the path with one.
		t.location.Path = cleanPath(rest)
	}
	t.location.RawQuery = c.R.URL.RawQuery
	c.proxyTo(t)
	return nil
}

// cleanPath resolves ".." in a path, because the request is authorized for this path only.
func cleanPath(of string) string {
	clean := path.Clean(of)
	if clean != "/" && strings.HasSuffix(of, "/") {
		clean += "/"
	}
	return clean
}

func (c *connection) podProxy(ctx context.Context, scheme, port string) (target, error) {
	pod, err := c.pod(ctx)
	if err != nil {
		return target{}, err
	}
	if port == "" {
		port = firstPort(pod)
	}
	if err := proxyable(pod.Status.PodIP); err != nil {
		return target{}, err
	}
	host := pod.Status.PodIP
	if port != "" {
		host = net.JoinHostPort(host, port)
	}
	return target{location: &url.URL{Scheme: orHTTP(scheme), Host: host}, transport: c.nodes.Transports().Proxy}, nil
}

func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return ""
}

func orHTTP(scheme string) string {
	if scheme == "" {
		return "http"
	}
	return scheme
}

// proxyable refuses addresses that could lead the API server to itself or its machine.
func proxyable(ip string) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return apierrors.NewBadRequest("address not allowed")
	}
	if !addr.IsGlobalUnicast() || addr.IsLoopback() || addr.IsLinkLocalUnicast() {
		return apierrors.NewBadRequest("address not allowed")
	}
	return nil
}

// serviceProxy connects to one of the service's ready endpoints.
func (c *connection) serviceProxy(ctx context.Context, scheme, port string) (target, error) {
	entry, err := c.Get(ctx, "")
	if err != nil {
		return target{}, err
	}
	service, err := registry.ObjectOf[*corev1.Service](entry)
	if err != nil {
		return target{}, err
	}
	portName, err := servicePort(service, port)
	if err != nil {
		return target{}, err
	}
	candidates, known, err := c.nodes.readyEndpoints(ctx, service, portName)
	switch {
	case err != nil:
		return target{}, err
	case !known:
		return target{}, apierrors.NewNotFound(c.Endpoint.Resource, c.Name)
	}
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	for _, chosen := range candidates {
		if !c.nodes.BelongsToPod(ctx, service.Namespace, chosen) {
			continue
		}
		if err := proxyable(chosen.Addr().String()); err != nil {
			return target{}, err
		}
		return target{location: &url.URL{Scheme: orHTTP(scheme), Host: chosen.String()}, transport: c.nodes.Transports().Proxy}, nil
	}
	return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", c.Info.Name))
}

// EndpointAddress is an address behind a service, with the object that it claims to belong to.
type EndpointAddress struct {
	netip.AddrPort
	TargetRef *corev1.ObjectReference
}

// BelongsToPod reports whether an address belongs to the pod that it refers to, in the service's
// namespace. Users who may write EndpointSlices must not be able to make the API server connect to
// any address in its network.
func (n *Connector) BelongsToPod(ctx context.Context, namespace string, a EndpointAddress) bool {
	pods, ok := n.Engine.Kinds.Hub("", "pods")
	if !ok || a.TargetRef == nil || a.TargetRef.Namespace != namespace {
		return false
	}
	entry, err := n.Engine.InternalOperation(pods, namespace, a.TargetRef.Name).Get(ctx, "")
	if err != nil {
		return false
	}
	pod, err := registry.ObjectOf[*corev1.Pod](entry)
	return err == nil && slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool {
		addr, err := netip.ParseAddr(ip.IP)
		return err == nil && addr == a.Addr()
	})
}

// servicePort returns the name of a service's port, given by name or number.
func servicePort(service *corev1.Service, port string) (string, error) {
	number, err := strconv.Atoi(port)
	if err != nil {
		return port, nil
	}
	for i := range service.Spec.Ports {
		if int(service.Spec.Ports[i].Port) == number {
			return service.Spec.Ports[i].Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, service.Name))
}

// readyEndpoints returns the ready addresses behind a service. known reports whether the service
// has any EndpointSlice.
func (n *Connector) readyEndpoints(ctx context.Context, service *corev1.Service, portName string) (out []EndpointAddress, known bool, err error) {
	kind, ok := n.Engine.Kinds.Hub("discovery.k8s.io", "endpointslices")
	if !ok {
		return nil, false, wire.ErrPathNotFound
	}
	op := n.Engine.InternalOperation(kind, service.Namespace, "")
	req, err := op.Endpoint.NewListRequest(metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if err != nil {
		return nil, false, err
	}
	p, err := op.List(ctx, req)
	if err != nil {
		return nil, false, err
	}
	for _, entry := range p.Entries {
		slice, err := registry.ObjectOf[*discoveryv1.EndpointSlice](entry)
		if err != nil {
			return nil, false, err
		}
		out = append(out, readyIn(slice, portName)...)
	}
	return out, len(p.Entries) > 0, nil
}

func readyIn(slice *discoveryv1.EndpointSlice, portName string) (out []EndpointAddress) {
	for _, p := range slice.Ports {
		if p.Port == nil || portName != "" && (p.Name == nil || *p.Name != portName) {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			if addr, err := netip.ParseAddr(e.Addresses[0]); err == nil {
				out = append(out, EndpointAddress{netip.AddrPortFrom(addr, uint16(*p.Port)), e.TargetRef})
			}
		}
	}
	return out
}

// nodeProxy connects to the node's kubelet, or to another port of the node.
func (c *connection) nodeProxy(ctx context.Context, scheme, port string) (target, error) {
	location, err := c.nodes.kubeletAt(ctx, c.Name)
	if err != nil {
		return target{}, err
	}
	if port == "" || port == location.Port() {
		return target{location: location, transport: c.nodes.Transports().Kubelet}, nil
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return target{}, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("NodeProxyOptions").GroupKind(), c.Name,
			field.ErrorList{field.Invalid(field.NewPath("port"), port, "must be a number")})
	}
	host := net.JoinHostPort(location.Hostname(), port)
	if err := proxyable(location.Hostname()); err != nil {
		return target{}, err
	}
	return target{location: &url.URL{Scheme: orHTTP(scheme), Host: host}, transport: c.nodes.Transports().Proxy}, nil
}

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/egress"
)

// defaultKubeletPort is the kubelet's port if its Node's status has none.
const defaultKubeletPort = 10250

// addressTypes is the default order of a node's addresses. Upstream begins with names, which small
// machines often cannot resolve.
var addressTypes = []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeInternalDNS, corev1.NodeExternalDNS, corev1.NodeHostName}

// transports are for outgoing connections to nodes, pods and services.
type transports struct {
	Kubelet    *http.Transport // with our client certificate
	Unverified *http.Transport // the same without verifying the kubelet, for logs on request
	Proxy      *http.Transport // to pods and services, without a client certificate
}

// Transports returns the transports, which are created on first use. When the kubelets' authorities
// have changed, it creates others; connections of the earlier ones end with their requests.
func (n *Connector) Transports() *transports {
	var roots *x509.CertPool
	if n.Roots != nil {
		roots = n.Roots()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.out != nil && n.roots == roots {
		return n.out
	}
	if n.out != nil {
		n.out.Kubelet.CloseIdleConnections()
	}
	n.out, n.roots = n.open(roots), roots
	return n.out
}

// open creates the transports; without roots, TLS has the authorities.
func (n *Connector) open(roots *x509.CertPool) *transports {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	over := func(config *tls.Config) *http.Transport {
		return &http.Transport{DialContext: n.Egress.Or(egress.Cluster, dialer.DialContext), TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second,
			IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 16}
	}
	verified, unverified := n.TLS.Clone(), InsecureTLS()
	if n.TLS != nil {
		unverified.Certificates, unverified.GetClientCertificate = n.TLS.Certificates, n.TLS.GetClientCertificate
		if roots != nil {
			verified.RootCAs = roots
		}
	}
	t := &transports{Kubelet: over(verified), Unverified: over(unverified), Proxy: over(InsecureTLS())}
	t.Proxy.DisableCompression = true
	return t
}

// kubeletAt returns the HTTPS address of a node's kubelet.
func (n *Connector) kubeletAt(ctx context.Context, nodeName string) (*url.URL, error) {
	node, err := n.node(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	host, err := nodeAddress(node, n.Addresses)
	if err != nil {
		return nil, err
	}
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		port = defaultKubeletPort
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(port))}, nil
}

// kubeletOf returns the address of the kubelet of a pod's node. As upstream, a missing node is
// reported as a pod of that name.
func (c *connection) kubeletOf(ctx context.Context, pod *corev1.Pod) (*url.URL, error) {
	location, err := c.nodes.kubeletAt(ctx, pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(c.Endpoint.Resource, pod.Spec.NodeName)
	}
	return location, err
}

func (n *Connector) node(ctx context.Context, name string) (*corev1.Node, error) {
	endpoint, ok := n.Engine.Kinds.Hub("", "nodes")
	if !ok {
		return nil, wire.ErrPathNotFound
	}
	entry, err := n.Engine.InternalOperation(endpoint, "", name).Get(ctx, "")
	if err != nil {
		return nil, err
	}
	return registry.ObjectOf[*corev1.Node](entry)
}

func nodeAddress(node *corev1.Node, order []corev1.NodeAddressType) (string, error) {
	if len(order) == 0 {
		order = addressTypes
	}
	for _, want := range order {
		for _, a := range node.Status.Addresses {
			if a.Type == want && a.Address != "" {
				return a.Address, nil
			}
		}
	}
	return "", wire.InternalServerError(fmt.Errorf("no preferred addresses found; known addresses: %v", node.Status.Addresses))
}

// containerStream returns the kubelet's exec or attach of a container.
func (c *connection) containerStream(ctx context.Context) (target, error) {
	q := c.R.URL.Query()
	if err := c.admitConnect(ctx, streamOptions(q, c.Subresource)); err != nil {
		return target{}, err
	}
	pod, err := c.pod(ctx)
	if err != nil {
		return target{}, err
	}
	container, err := containerOf(pod, q.Get("container"))
	if err != nil {
		return target{}, err
	}
	params := url.Values{}
	for name, kubelet := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
		if wire.IsTrue(q.Get(name)) {
			params.Set(kubelet, "1")
		}
	}
	if c.Subresource == "exec" {
		params["command"] = q["command"]
	}
	return c.toKubelet(ctx, pod, fmt.Sprintf("/%s/%s/%s/%s", c.Subresource, pod.Namespace, pod.Name, container), params)
}

// portForward returns the kubelet's port forwarding to a pod.
func (c *connection) portForward(ctx context.Context) (target, error) {
	opts := &corev1.PodPortForwardOptions{}
	params := url.Values{}
	for _, list := range c.R.URL.Query()["ports"] {
		for part := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(part, 10, 16)
			if err != nil {
				return target{}, apierrors.NewBadRequest(fmt.Sprintf("cannot convert to []int32: %v", err))
			}
			opts.Ports = append(opts.Ports, int32(port))
			params.Add("port", part)
		}
	}
	if err := c.admitConnect(ctx, opts); err != nil {
		return target{}, err
	}
	pod, err := c.pod(ctx)
	if err != nil {
		return target{}, err
	}
	return c.toKubelet(ctx, pod, fmt.Sprintf("/portForward/%s/%s", pod.Namespace, pod.Name), params)
}

func (c *connection) toKubelet(ctx context.Context, pod *corev1.Pod, path string, params url.Values) (target, error) {
	if pod.Spec.NodeName == "" {
		return target{}, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	location, err := c.kubeletOf(ctx, pod)
	if err != nil {
		return target{}, err
	}
	location.Path, location.RawQuery = path, params.Encode()
	return target{location: location, transport: c.nodes.Transports().Kubelet, upgrade: true}, nil
}

// containerOf returns the named container, or the only one.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var regular, initial, ephemeral []string
	for i := range pod.Spec.Containers {
		regular = append(regular, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.InitContainers {
		initial = append(initial, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		ephemeral = append(ephemeral, pod.Spec.EphemeralContainers[i].Name)
	}
	if name != "" {
		if !slices.Contains(slices.Concat(regular, initial, ephemeral), name) {
			return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
		}
		return name, nil
	}
	if len(regular) == 1 {
		return regular[0], nil
	}
	text := fmt.Sprintf("a container name must be specified for pod %s", pod.Name)
	if len(regular) > 0 {
		text += fmt.Sprintf(", choose one of: %s", regular)
		if len(initial) > 0 {
			text += fmt.Sprintf(" or one of the init containers: %s", initial)
		}
		if len(ephemeral) > 0 {
			text += fmt.Sprintf(" or one of the ephemeral containers: %s", ephemeral)
		}
	}
	return "", apierrors.NewBadRequest(text)
}

package aggregation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/trace"
)

// Remote is an APIService that names a Service. It is replaced when its spec changes.
type Remote struct {
	aggregator *Aggregator
	name       string
	uid        types.UID
	gv         schema.GroupVersion
	spec       apiregistrationv1.APIServiceSpec

	// plain uses the server's preferred protocol; stream only HTTP/1.1, for connections that change
	// their protocol.
	plain, stream *http.Transport
	traced        http.RoundTripper // plain, with trace headers
	transportErr  error

	available  atomic.Bool
	checked    atomic.Bool // set after the first check of this process
	discovered atomic.Pointer[discoveryResult]
	wake       chan struct{}
	cancel     context.CancelFunc
	context    context.Context
}

// discoveryResult is the content of a remote's discovery document.
type discoveryResult struct {
	resources []metav1.APIResource
	stale     bool
}

func newRemote(a *Aggregator, object *apiregistrationv1.APIService) *Remote {
	r := &Remote{
		aggregator: a, name: object.Name, uid: object.UID, spec: *object.Spec.DeepCopy(),
		gv:   schema.GroupVersion{Group: object.Spec.Group, Version: object.Spec.Version},
		wake: make(chan struct{}, 1),
	}
	r.context, r.cancel = context.WithCancel(context.Background())
	// Until the first check ends, use the result of another server, or of this one before its
	// restart.
	r.available.Store(available(object))
	config, err := r.tlsConfig()
	r.transportErr = err
	r.stream = &http.Transport{
		DialContext: r.dial, TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second, DisableCompression: true,
		IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 16,
	}
	r.plain = r.stream.Clone()
	r.plain.ForceAttemptHTTP2 = true
	r.traced = trace.Transport(r.plain)
	return r
}

// close ends the checks and the idle connections.
func (r *Remote) close() {
	r.cancel()
	r.plain.CloseIdleConnections()
	r.stream.CloseIdleConnections()
}

func (r *Remote) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: r.spec.Service.Name + "." + r.spec.Service.Namespace + ".svc",
		InsecureSkipVerify: r.spec.InsecureSkipTLSVerify, GetClientCertificate: r.aggregator.cfg.Certificate,
	}
	if len(r.spec.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(r.spec.CABundle) {
			return nil, fmt.Errorf("APIService %s: spec.caBundle holds no certificate", r.name)
		}
	}
	return config, nil
}

// Available reports whether the server answers.
func (r *Remote) Available() bool { return r.available.Load() }

// Serve forwards an authorized request.
func (r *Remote) Serve(w http.ResponseWriter, req *http.Request, user auth.User) {
	if r.transportErr != nil {
		http.Error(w, r.transportErr.Error(), http.StatusInternalServerError)
		return
	}
	if !r.available.Load() {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	location, err := r.location()
	if err != nil {
		r.aggregator.cfg.Logger.Debug("an extension server cannot be reached", "apiservice", r.name, "err", err)
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	location.Path, location.RawPath, location.RawQuery = req.URL.Path, req.URL.RawPath, req.URL.RawQuery
	out := req.Clone(req.Context())
	out.URL, out.Host = location, location.Host // forwarding headers have the original host
	out.Header.Set("Audit-Id", w.Header().Get("Audit-Id"))
	setUser(out, user)
	upgrade := httpstream.IsUpgradeRequest(req)
	handler := utilproxy.NewUpgradeAwareHandler(location, r.traced, true, upgrade, errorResponder{r})
	if upgrade {
		handler.Transport = r.stream
	}
	handler.UseLocationHost = true
	// A server must not redirect its clients, with their credentials, elsewhere.
	handler.RejectForwardingRedirects = true
	handler.ServeHTTP(w, out)
}

// errorResponder answers when the server cannot be reached.
type errorResponder struct{ r *Remote }

func (f errorResponder) Error(w http.ResponseWriter, req *http.Request, err error) {
	f.r.aggregator.cfg.Logger.Debug("a request to an extension server failed", "apiservice", f.r.name, "path", req.URL.Path, "err", err)
	f.r.checkNow()
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// setUser sets the headers with the user's identity, and removes other credentials.
func setUser(req *http.Request, user auth.User) {
	req.Header.Del("Authorization")
	transport.SetAuthProxyHeaders(req, user.Name, user.UID, user.Groups, user.Extra)
}

// Send sends an authorized request of a client in this process.
func (r *Remote) Send(req *http.Request, user auth.User) (*http.Response, error) {
	if r.transportErr != nil {
		return nil, r.transportErr
	}
	location, err := r.location()
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = location.Scheme, location.Host, ""
	setUser(out, user)
	return r.plain.RoundTrip(out)
}

var errNotOpen = errors.New("the Services are not loaded yet")

// service returns the Service in the spec and its endpoints.
func (r *Remote) service() (*corev1.Service, []*discoveryv1.EndpointSlice, error) {
	n := r.aggregator.network.Load()
	if n == nil {
		return nil, nil, errNotOpen
	}
	ref := r.spec.Service
	service, ok := n.services.Get(ref.Namespace, ref.Name)
	if !ok {
		return nil, nil, nil
	}
	return service, n.slices.ByIndex(byService, ref.Namespace+"/"+ref.Name), nil
}

// location returns the server's URL as clients of the Service use it. dial decides where
// connections really go.
func (r *Remote) location() (*url.URL, error) {
	service, _, err := r.service()
	if err != nil {
		return nil, err
	}
	if service == nil {
		return nil, fmt.Errorf("service %q not found", r.spec.Service.Name)
	}
	host, port := service.Spec.ClusterIP, strconv.Itoa(int(*r.spec.Service.Port))
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		host = service.Spec.ExternalName
	case host == "" || host == corev1.ClusterIPNone:
		host = r.spec.Service.Name + "." + r.spec.Service.Namespace + ".svc"
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}, nil
}

// maxEndpoints is how many endpoints a new connection tries.
const maxEndpoints = 3

// dial connects to ready endpoints of the Service, one after the other, and finally to the address
// itself.
func (r *Remote) dial(ctx context.Context, network, address string) (net.Conn, error) {
	service, slices, err := r.service()
	if err != nil {
		return nil, err
	}
	var errs []error
	if service != nil && service.Spec.Type != corev1.ServiceTypeExternalName {
		var targets []string
		if name, ok := client.PortName(service, *r.spec.Service.Port); ok {
			targets = client.ReadyAddresses(slices, name)
		}
		rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		for _, target := range targets[:min(maxEndpoints, len(targets))] {
			conn, err := r.aggregator.cfg.Dial(ctx, network, target)
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone {
			return nil, errors.Join(append(errs, fmt.Errorf("service %s/%s has no cluster IP", service.Namespace, service.Name))...)
		}
	}
	conn, err := r.aggregator.cfg.Dial(ctx, network, address)
	if err != nil && len(errs) > 0 {
		return nil, errs[0] // the endpoints' own error says more
	}
	return conn, err
}

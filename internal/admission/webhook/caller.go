package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/api/bounds"
	"github.com/knarr-project/knarr/internal/trace"
)

// caller sends reviews to one endpoint and keeps its connections.
type caller struct {
	rest      rest.Interface
	transport *http.Transport
	server    string // HOST, or HOST:PORT
}

const (
	defaultServicePort = 443
	userAgent          = "kube-apiserver-admission"
	// idleConnections is the number of idle connections kept per endpoint: about the usual number
	// in use at once.
	idleConnections = 25
	// maxResponse limits a webhook's response. An object with patches of all its fields fits.
	maxResponse = 16 << 20
)

var reviews = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, admissionv1beta1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two modules have incompatible versions
		}
	}
	metav1.AddToGroupVersion(s, metav1.Unversioned)
	return s
}()

// codec decodes responses in JSON or YAML, regardless of their media type.
var codec = serializer.NewCodecFactory(reviews).LegacyCodec(admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion)

func sameEndpoint(a, b admissionregistrationv1.WebhookClientConfig) bool {
	if !bytes.Equal(a.CABundle, b.CABundle) || (a.URL == nil) != (b.URL == nil) || (a.Service == nil) != (b.Service == nil) {
		return false
	}
	if a.URL != nil && *a.URL != *b.URL {
		return false
	}
	if a.Service == nil {
		return true
	}
	path := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	return a.Service.Namespace == b.Service.Namespace && a.Service.Name == b.Service.Name && servicePort(a.Service) == servicePort(b.Service) && path(a.Service.Path) == path(b.Service.Path)
}

func servicePort(s *admissionregistrationv1.ServiceReference) int32 {
	if s.Port == nil {
		return defaultServicePort
	}
	return *s.Port
}

// newCaller prepares the client of an endpoint: a URL, or a Service, whose certificate must have
// the name NAME.NAMESPACE.svc.
func newCaller(endpoint admissionregistrationv1.WebhookClientConfig, config *Config) (*caller, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if len(endpoint.CABundle) > 0 {
		trusted, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: endpoint.CABundle}})
		if err != nil {
			return nil, err
		}
		secure.RootCAs = trusted.RootCAs
	}
	direct := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, TLSHandshakeTimeout: 10 * time.Second,
		// HTTP/1.1 spreads connections over the endpoints of a Service.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: 90 * time.Second,
	}
	server := ""
	to := &rest.Config{QPS: -1, ContentConfig: rest.ContentConfig{NegotiatedSerializer: serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})}}
	switch {
	case endpoint.Service != nil:
		s := endpoint.Service
		secure.ServerName = s.Name + "." + s.Namespace + ".svc"
		server = secure.ServerName
		if port := servicePort(s); port != defaultServicePort {
			server = net.JoinHostPort(server, strconv.Itoa(int(port)))
		}
		to.Host = "https://" + net.JoinHostPort(secure.ServerName, strconv.Itoa(int(servicePort(s))))
		if s.Path != nil {
			to.APIPath = *s.Path
		}
		transport.Proxy = nil
		dial := config.Egress.ServiceWebhook(s.Namespace, s.Name, servicePort(s), direct)
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			address, err := config.Resolve(ctx, s.Namespace, s.Name, servicePort(s))
			if err != nil {
				return nil, err
			}
			return dial(ctx, network, address)
		}
	case endpoint.URL != nil:
		u, err := url.Parse(*endpoint.URL)
		if err != nil {
			return nil, fmt.Errorf("unparsable URL: %w", err)
		}
		server, to.Host, to.APIPath = u.Host, u.Scheme+"://"+u.Host, u.Path
		transport.DialContext = config.Egress.Webhook(u.Host, direct)
	default:
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	authenticated, err := config.Credentials.transport(server, transport)
	if err != nil {
		return nil, err
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(to, &http.Client{Transport: trace.Transport(limited{authenticated})})
	return &caller{rest: client, transport: transport, server: server}, err
}

// close closes idle connections; running requests continue.
func (c *caller) close() { c.transport.CloseIdleConnections() }

// limited makes reading fail beyond maxResponse bytes.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxResponse)
	}
	return response, err
}

// ask sends the review and returns the answer. A refusal by the hook is an answer, not an error.
// Every error is a callError.
func (h *hook) ask(ctx context.Context, e *encoded, uid string) (*answer, error) {
	version, err := reviewVersion(h.versions)
	if err != nil {
		return nil, &callError{fmt.Errorf("could not create admission objects: %w", err), http.StatusBadRequest}
	}
	c, err := h.client()
	if err != nil {
		return nil, &callError{fmt.Errorf("could not get REST client: %w", err), http.StatusInternalServerError}
	}
	ctx, span := trace.Start(ctx, h.spanName())
	if span.On() {
		request := e.Request()
		resource := schema.GroupVersionResource(request.Resource)
		span.Set(trace.Text("configuration", h.configuration), trace.Text("webhook", h.name), trace.Text("resource", resource.String()),
			trace.Text("subresource", request.SubResource), trace.Text("operation", string(request.Operation)), trace.Text("UID", uid))
	}
	defer span.End()
	if err := e.encode(); err != nil {
		return nil, &callError{err, http.StatusInternalServerError}
	}
	timeout := h.timeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		// The timeout sent to the webhook is in whole seconds, at least one.
		left := time.Duration(math.Ceil(time.Until(deadline).Seconds())) * time.Second
		timeout = min(timeout, max(left, time.Second))
	}
	body, err := reviewBody(e, version, uid)
	if err != nil {
		return nil, &callError{err, http.StatusInternalServerError}
	}
	result := c.rest.Post().Timeout(timeout).SetHeader("Content-Type", runtime.ContentTypeJSON).SetHeader("User-Agent", userAgent).Body(body).Do(ctx)
	data, failure := result.Raw()
	review, err := newReview(version, data, result.Into)
	if failure != nil && bounds.Aliases(data) != nil {
		err = failure // The status code says more than an unreadable page.
	}
	if err != nil {
		code := http.StatusServiceUnavailable
		if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
			code = int(status.ErrStatus.Code)
		}
		return nil, &callError{fmt.Errorf("failed to call webhook: %w", err), code}
	}
	a, err := readAnswer(review, version, uid, h.kind == measure.Mutating)
	if err != nil {
		return nil, &callError{fmt.Errorf("received invalid webhook response: %w", err), http.StatusServiceUnavailable}
	}
	return a, nil
}

// spanName returns upstream's name for the span of a call.
func (h *hook) spanName() string {
	if h.kind == measure.Mutating {
		return "Call mutating webhook"
	}
	return "Call validating webhook"
}

// reviewVersion returns the first of the hook's versions that this server supports.
func reviewVersion(versions []string) (string, error) {
	for _, v := range versions {
		if v == "v1" || v == "v1beta1" {
			return v, nil
		}
	}
	if len(versions) == 0 {
		return "v1beta1", nil
	}
	return "", fmt.Errorf("webhook does not accept known AdmissionReview versions (%s)", strings.Join([]string{"v1", "v1beta1"}, ", "))
}

// reviewBody encodes the AdmissionReview. Both versions have the same fields.
func reviewBody(e *encoded, version, uid string) ([]byte, error) {
	request := e.Request()
	request.UID = types.UID(uid)
	request.Object, request.OldObject = runtime.RawExtension{Raw: e.object}, runtime.RawExtension{Raw: e.oldObject}
	review := admissionv1.AdmissionReview{Request: request}
	review.APIVersion, review.Kind = admissionv1.GroupName+"/"+version, "AdmissionReview"
	return json.Marshal(&review)
}

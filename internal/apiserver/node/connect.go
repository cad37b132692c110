package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/httpstream"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/klog/v2"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/rest"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/egress"
)

// target is the destination of a stream or proxy.
type target struct {
	location  *url.URL
	transport http.RoundTripper
	// upgrade requires an upgraded connection (exec, attach, portforward).
	upgrade bool
}

// Connector reaches kubelets, pods and Services for requests that are streams or proxies.
type Connector struct {
	Engine  *verb.Engine
	Metrics *telemetry.WriteMetrics
	Log     *slog.Logger
	Egress  *egress.Selector // nil connects directly
	TLS     *tls.Config      // for kubelets; nil sends no client certificate
	// Roots returns kubelets' authorities if they change; nil means those of TLS. A change returns
	// another pool.
	Roots func() *x509.CertPool
	// Addresses are the kinds of nodes' addresses that are tried, in order; nil is addressTypes.
	Addresses []corev1.NodeAddressType

	mu    sync.Mutex // guards out and roots
	out   *transports
	roots *x509.CertPool
}

// connection is a request that becomes a stream or is proxied.
type connection struct {
	*rest.Call
	nodes *Connector
}

// Connect serves streams and proxies to objects: pods' log, exec, attach and portforward, and the
// proxies of pods, services and nodes.
func (n *Connector) Connect(of *rest.Call) {
	c := &connection{Call: of, nodes: n}
	ctx := c.R.Context()
	var err error
	switch {
	case c.Subresource == "log":
		err = c.serveLog(ctx)
	case c.Info.Query.Has("dryRun"):
		err = apierrors.NewBadRequest("dryRun is not supported")
	case c.Subresource == "exec", c.Subresource == "attach":
		err = c.serveStream(ctx, c.containerStream)
	case c.Subresource == "portforward":
		err = c.serveStream(ctx, c.portForward)
	case c.Subresource == "proxy":
		err = c.serveProxy(ctx)
	default:
		err = wire.ErrPathNotFound
	}
	if err != nil {
		wire.RespondError(c.W, wire.ErrorFormat(c.R), err)
	}
}

// admitConnect runs admission for the connection.
func (c *connection) admitConnect(ctx context.Context, options runtime.Object) error {
	a := c.Attributes(admission.Connect, options, nil)
	a.Name = c.Info.Name // with the port, if there is one
	if err := c.Admit(ctx, a); err != nil {
		return err
	}
	return c.ValidateAdmission(ctx, a)
}

func (c *connection) serveStream(ctx context.Context, find func(context.Context) (target, error)) error {
	if err := c.authorizeStream(ctx); err != nil {
		return err
	}
	t, err := find(ctx)
	if err != nil {
		return err
	}
	if !httpstream.IsUpgradeRequest(c.R) {
		return apierrors.NewBadRequest("Upgrade request required")
	}
	c.proxyTo(t)
	return nil
}

// authorizeStream also requires the verb create for a GET, with which WebSockets begin: a user who
// may only read must not run commands (AuthorizePodWebsocketUpgradeCreatePermission).
func (c *connection) authorizeStream(ctx context.Context) error {
	if c.R.Method != http.MethodGet {
		return nil
	}
	a := wire.RequestAttributes(c.User, c.Info)
	a.Verb = "create"
	return c.Engine.Authorize(ctx, a)
}

// proxyTo forwards the request, upgrades included.
func (c *connection) proxyTo(t target) {
	handler := utilproxy.NewUpgradeAwareHandler(t.location, t.transport, !t.upgrade, t.upgrade, proxyErrors{c})
	// The library logs each closed stream as an error, so its logger is disabled; earlier errors go
	// to proxyErrors.
	handler.ServeHTTP(c.W, c.R.WithContext(klog.NewContext(c.R.Context(), klog.Logger{})))
}

// proxyErrors answers when the target cannot be reached.
type proxyErrors struct{ c *connection }

func (p proxyErrors) Error(w http.ResponseWriter, r *http.Request, err error) {
	if !wire.IsStatus(err) {
		p.c.nodes.Log.Debug("a proxied request failed", "path", p.c.Info.Path, "err", err)
		err = apierrors.NewServiceUnavailable("error trying to reach service: " + err.Error())
	}
	wire.RespondError(w, wire.ErrorFormat(r), err)
}

// pod returns the newest state of the pod in the path.
func (c *connection) pod(ctx context.Context) (*corev1.Pod, error) {
	entry, err := c.Get(ctx, "")
	if err != nil {
		return nil, err
	}
	return registry.ObjectOf[*corev1.Pod](entry)
}

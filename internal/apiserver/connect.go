package apiserver

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/httpstream"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/klog/v2"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/egress"
)

// target is the destination of a stream or proxy.
type target struct {
	location  *url.URL
	transport http.RoundTripper
	// upgrade requires an upgraded connection (exec, attach, portforward).
	upgrade bool
}

// nodes reaches kubelets, pods and Services for requests that are streams or proxies.
type nodes struct {
	engine  *engine
	metrics *writeMetrics
	log     *slog.Logger
	egress  *egress.Selector // nil connects directly
	tls     *tls.Config      // for kubelets; nil is without a client certificate
	// addresses are the kinds of nodes' addresses that are tried, in order; nil is addressTypes.
	addresses []corev1.NodeAddressType
	out       transports
}

// connection is a request that becomes a stream or is proxied.
type connection struct {
	*call
	nodes *nodes
}

// connect serves streams and proxies to objects: pods' log, exec, attach and portforward, and the
// proxies of pods, services and nodes.
func (n *nodes) connect(of *call) {
	c := &connection{call: of, nodes: n}
	ctx := c.r.Context()
	var err error
	switch {
	case c.subresource == "log":
		err = c.serveLog(ctx)
	case c.info.query.Has("dryRun"):
		err = apierrors.NewBadRequest("dryRun is not supported")
	case c.subresource == "exec", c.subresource == "attach":
		err = c.serveStream(ctx, c.containerStream)
	case c.subresource == "portforward":
		err = c.serveStream(ctx, c.portForward)
	case c.subresource == "proxy":
		err = c.serveProxy(ctx)
	default:
		err = errNoSuchPath
	}
	if err != nil {
		respondError(c.w, plainFormat(c.r), err)
	}
}

// admitConnect runs admission for the connection.
func (c *connection) admitConnect(ctx context.Context, options runtime.Object) error {
	a := c.attributes(admission.Connect, options, nil)
	a.Name = c.info.name // with the port, if there is one
	if err := c.admit(ctx, a); err != nil {
		return err
	}
	return c.validateAdmission(ctx, a)
}

func (c *connection) serveStream(ctx context.Context, find func(context.Context) (target, error)) error {
	if err := c.mayStream(ctx); err != nil {
		return err
	}
	t, err := find(ctx)
	if err != nil {
		return err
	}
	if !httpstream.IsUpgradeRequest(c.r) {
		return apierrors.NewBadRequest("Upgrade request required")
	}
	c.proxyTo(t)
	return nil
}

// mayStream also requires the verb create for a GET, with which WebSockets begin: a user who may
// only read must not run commands (AuthorizePodWebsocketUpgradeCreatePermission).
func (c *connection) mayStream(ctx context.Context) error {
	if c.r.Method != http.MethodGet {
		return nil
	}
	a := requestAttributes(c.user, c.info)
	a.Verb = "create"
	return c.engine.authorize(ctx, a)
}

// proxyTo forwards the request, upgrades included.
func (c *connection) proxyTo(t target) {
	handler := utilproxy.NewUpgradeAwareHandler(t.location, t.transport, !t.upgrade, t.upgrade, proxyErrors{c})
	// The library logs each closed stream as an error, so its logger is disabled; earlier errors go
	// to proxyErrors.
	handler.ServeHTTP(c.w, c.r.WithContext(klog.NewContext(c.r.Context(), klog.Logger{})))
}

// proxyErrors answers when the target cannot be reached.
type proxyErrors struct{ c *connection }

func (p proxyErrors) Error(w http.ResponseWriter, r *http.Request, err error) {
	if !isStatus(err) {
		p.c.nodes.log.Debug("a proxied request failed", "path", p.c.info.path, "err", err)
		err = apierrors.NewServiceUnavailable("error trying to reach service: " + err.Error())
	}
	respondError(w, plainFormat(r), err)
}

// pod returns the newest state of the pod in the path.
func (c *connection) pod(ctx context.Context) (*corev1.Pod, error) {
	entry, err := c.get(ctx, "")
	if err != nil {
		return nil, err
	}
	return objectOf[*corev1.Pod](entry)
}

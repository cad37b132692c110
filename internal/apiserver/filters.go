package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/rest"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
)

// beforeUser sets the headers that do not depend on the user, and answers CORS preflights.
func (c *chain) beforeUser(x *exchange) bool {
	return !c.cfg.Front.handle(x.w, x.r, c.transport.GoAway)
}

// limitTime reads how long the request may take.
func (c *chain) limitTime(x *exchange) bool {
	limit, invalid := timeoutOf(x.r, x.info, c.cfg.RequestTimeout)
	if invalid != nil {
		c.refuseUnauthenticated(x, invalid.ErrStatus.Message, invalid)
		return false
	}
	x.limit = limit
	return true
}

// authenticate finds the user. Its time counts for refused requests, too.
func (c *chain) authenticate(x *exchange) bool {
	if user, ok := insideUser(x.r.Context()); ok {
		x.user = user
		return true
	}
	m := c.metrics.Security
	var err error
	x.user, err = c.access.authenticate(x.r)
	if err != nil && !errors.Is(err, wire.ErrNoCredentials) && c.catchUpWithin(x.r.Context(), secondLook) {
		x.user, err = c.access.authenticate(x.r)
	}
	x.authenticating = time.Since(x.began)
	m.AuthenticatedAs(x.r, &x.user, err, x.authenticating)
	if err != nil {
		m.Authentication.Observe(x.authenticating.Seconds())
		c.log.Debug("a request is not authenticated", "path", x.r.URL.Path, "err", err)
		c.refuseUnauthenticated(x, failedCredentials(x.r), apierrors.NewUnauthorized("Unauthorized"))
		return false
	}
	return true
}

// trace begins the request's span.
func (c *chain) trace(x *exchange) bool {
	x.ctx = c.traced(x.w, x.r, x.info, x.id, &x.user, x.began, x.timer.Since)
	x.timer.Span = x.w.Span
	return true
}

// audit begins the request's audit record, and with it the request's time.
func (c *chain) audit(x *exchange) bool {
	ctx, err := c.beginAudit(x)
	if err != nil {
		respondInternalError(x.w, x.r, err)
		return false
	}
	x.w.AddRemarks(x.user.Remarks)
	x.ctx, x.cancel = c.withDeadline(ctx, x.w.ResponseWriter, x.info, x.limit)
	if x.r.ProtoMajor == 1 {
		x.w.Deadline, _ = x.ctx.Deadline()
	}
	return true
}

// impersonate replaces the user by the one that the request's headers name.
func (c *chain) impersonate(x *exchange) bool {
	user, err := c.impersonator.apply(x.ctx, x.r, x.user, x.info)
	if err != nil {
		respondForbidden(x.w, x.r, err)
		return false
	}
	x.user = user
	return true
}

// waitForSeats waits until flow control lets the request in.
func (c *chain) waitForSeats(x *exchange) bool {
	if !c.flow.enter(x.ctx, x.w, x.info, x.user) {
		return false
	}
	x.w.Audit.AddLatency(audit.Queue, x.w.Queued)
	return true
}

// catchUp brings the caches to the newest state of all servers before a write. Reads ask the store
// themselves for its newest revision, unless they accept an older state.
func (c *chain) catchUp(x *exchange) bool {
	if !isWrite(x.info.Verb) {
		return true
	}
	if err := c.shared.CatchUp(x.ctx); err != nil {
		wire.RespondError(x.w, wire.ErrorFormat(x.r), err)
		return false
	}
	return true
}

// isWrite reports whether requests with the verb depend on admission.
func isWrite(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// secondLook limits how long a refused request waits for the caches.
const secondLook = time.Second

// catchUpWithin reports whether the caches may have changed since a refusal: the credentials or the
// role may just have been written through another server.
func (c *chain) catchUpWithin(ctx context.Context, limit time.Duration) bool {
	if c.cfg.Alone() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.shared.CatchUp(ctx) == nil
}

// authorize asks whether the user may make the request.
func (c *chain) authorize(x *exchange) bool {
	refusal, failure := c.authorizeRequest(x.ctx, wire.RequestAttributes(x.user, x.info))
	switch {
	case failure != nil:
		respondInternalError(x.w, x.r, failure)
	case refusal != nil:
		respondForbidden(x.w, x.r, refusal)
	}
	return failure == nil && refusal == nil
}

// serve hands an authorized request to the handler of its path.
func (c *chain) serve(x *exchange) bool {
	r := x.r.WithContext(auth.WithUser(x.ctx, x.user))
	if remote, ok := c.remotes.Find(x.info.Path); ok {
		if rest.RefuseTravel(x.w, r) {
			return true
		}
		remote.Serve(x.w, r, x.user)
		return true
	}
	if x.info.IsResource {
		c.resources.Serve(x.w, r, x.info, x.user)
		return true
	}
	c.metrics.Served(x.w, x.info)
	c.mux.ServeHTTP(x.w, r)
	return true
}

// respondForbidden answers a request that the user may not make. As upstream, only these refusals
// have the header X-Content-Type-Options.
func respondForbidden(w *telemetry.ResponseRecorder, r *http.Request, err error) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	wire.RespondError(w, wire.ErrorFormat(r), err)
}

// respondInternalError answers with the filters' own failure, as plain text whatever the client
// accepts.
func respondInternalError(w http.ResponseWriter, r *http.Request, err error) {
	http.Error(w, fmt.Sprintf("Internal Server Error: %q: %v", r.RequestURI, err), http.StatusInternalServerError)
}

// beginAudit begins the request's audit record, if the policy wants one. It fails if the record
// cannot be written as configured.
func (c *chain) beginAudit(x *exchange) (context.Context, error) {
	if c.cfg.Audit == nil {
		return x.ctx, nil
	}
	a := wire.RequestAttributes(x.user, x.info)
	rec := c.cfg.Audit.Begin(x.id, &a, x.r)
	rec.Authenticated(x.authenticating)
	if err := rec.Received(); err != nil {
		return nil, err
	}
	x.w.Audit = rec
	if rec != nil && x.info.LongRunning() {
		rec.LongRunning()
		x.w.OnBegin = func(code int) { rec.Stage(auditv1.StageResponseStarted, code) }
	}
	return audit.With(x.ctx, rec), nil
}

// refuseUnauthenticated answers a request before its user is known. The message goes to the audit
// log in case the client accepts no known format.
func (c *chain) refuseUnauthenticated(x *exchange, message string, refusal *apierrors.StatusError) {
	a := wire.RequestAttributes(auth.User{}, x.info)
	x.w.Audit = c.cfg.Audit.Begin(x.id, &a, x.r)
	x.w.Audit.Status(&metav1.Status{Message: message})
	wire.RespondError(x.w, wire.ErrorFormat(x.r), refusal)
	// Upstream records only this stage.
	x.w.Audit.Stage(auditv1.StageResponseStarted, int(refusal.ErrStatus.Code))
	x.w.Audit = nil
}

// failedCredentials returns upstream's message with the kinds of credentials that failed.
func failedCredentials(r *http.Request) string {
	var methods []string
	if _, _, ok := r.BasicAuth(); ok {
		methods = append(methods, "basic")
	}
	if scheme, _, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " "); ok && strings.EqualFold(scheme, "bearer") {
		methods = append(methods, "bearer")
	}
	if strings.TrimSpace(r.URL.Query().Get("access_token")) != "" {
		methods = append(methods, "access_token")
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		methods = append(methods, "x509")
	}
	if len(methods) == 0 {
		return "Authentication failed, no credentials provided"
	}
	return "Authentication failed, attempted: " + strings.Join(methods, ", ")
}

// authorizeRequest authorizes a request and counts and records the outcome. failure is set if an
// authorizer failed and none allowed the request. Its error is never sent as a Status, whatever its
// type: a missing webhook must not look like a missing object.
func (c *chain) authorizeRequest(ctx context.Context, a auth.Attributes) (refusal *apierrors.StatusError, failure error) {
	since := time.Now()
	decision, reason, err := c.access.Authorizer().Authorize(ctx, a)
	if decision != auth.Allow && !isWrite(a.Verb) && c.catchUpWithin(ctx, secondLook) {
		decision, reason, err = c.access.Authorizer().Authorize(ctx, a)
	}
	took := time.Since(since)
	rec := audit.From(ctx)
	rec.AddLatency(audit.Authorization, took)
	if decision == auth.Allow {
		c.metrics.Security.Allowed.Observe(took)
		rec.Annotate("authorization.k8s.io/decision", "allow")
		rec.Annotate("authorization.k8s.io/reason", reason)
		return nil, nil
	}
	result := "no-opinion"
	switch {
	case err != nil:
		result = "error"
	case decision == auth.Deny:
		result = "denied"
	}
	c.metrics.Security.AuthorizedAs(result, took)
	if err != nil { // no authorizer allowed it, but the failed one might have
		rec.Annotate("authorization.k8s.io/reason", "internal error")
		return nil, err
	}
	rec.Annotate("authorization.k8s.io/decision", "forbid")
	rec.Annotate("authorization.k8s.io/reason", reason)
	return auth.Forbidden(a, reason), nil
}

func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= 64 {
		return id
	}
	return uuid.NewString()
}

// endRequest ends the request's audit record. A panic is answered with 500 and logged.
// http.ErrAbortHandler passes, because a proxy uses it to break off.
func (c *chain) endRequest(w *telemetry.ResponseRecorder, r *http.Request, info *wire.RequestInfo) {
	v := recover()
	if v == nil && w.Detached {
		return
	}
	w.Seats.Done()
	if v == nil || v == http.ErrAbortHandler {
		w.Audit.Stage(auditv1.StageResponseComplete, max(w.Code, http.StatusOK))
		if v != nil {
			c.metrics.Aborted(info)
			panic(v)
		}
		return
	}
	c.log.Error("panic while serving", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	wire.RespondError(w, wire.ErrorFormat(r), apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
	w.Audit.Stage(auditv1.StagePanic, http.StatusInternalServerError)
}

package apiserver

import (
	"context"
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
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
)

// newHandler handles every HTTP request: recover from panics, answer requests that need no user,
// authenticate, begin the audit record, impersonate, wait for seats, authorize, serve.
func (s *Server) newHandler() http.Handler {
	mux := s.newMux()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w, info := &telemetry.ResponseRecorder{ResponseWriter: rw, Closing: &s.leaving}, wire.ParseRequest(r)
		if s.cfg.ShutdownRetryAfter {
			done, ok := s.acceptRequest(rw, r, info)
			if !ok {
				limitBodyDrain(rw, r, s.cfg.RequestTimeout)
				return
			}
			defer done()
		}
		defer func() {
			if !w.Detached {
				limitBodyDrain(rw, r, s.cfg.RequestTimeout)
			}
		}()
		w.OnEnd = s.metrics.Begin(w, info, r.ContentLength)
		defer w.Release()
		filters, m := telemetry.FilterTimer{Since: time.Now()}, s.metrics.Security
		began := filters.Since
		defer s.endAudit(w, r, info)
		header := w.Header()
		id := auditID(r)
		header.Set("Audit-Id", id)
		header.Set("Cache-Control", "no-cache, private")
		if s.cfg.Front.handle(w, r, s.transport.GoAway) {
			return
		}
		limit, invalid := timeoutOf(info, s.cfg.RequestTimeout)
		if invalid != nil {
			s.refuseUnauthenticated(w, r, info, id, invalid.ErrStatus.Message, invalid)
			return
		}
		user, err := s.access.authenticate(r)
		took := filters.EndFilter(m.Authentication)
		m.AuthenticatedAs(r, &user, err, took)
		if err != nil {
			s.log.Debug("a request is not authenticated", "path", r.URL.Path, "err", err)
			s.refuseUnauthenticated(w, r, info, id, failedCredentials(r), apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		ctx := s.traced(w, r, info, id, &user, began, filters.Since)
		filters.Span = w.Span
		ctx, err = s.beginAudit(ctx, w, r, info, id, user, took)
		if err != nil {
			respondInternalError(w, r, err)
			return
		}
		w.AddRemarks(user.Remarks)
		ctx, cancel := s.withDeadline(ctx, rw, info, limit)
		defer func() { s.metrics.Expired(ctx, w, info); cancel() }()
		filters.EndStage("audit", m.Record)
		if user, err = s.impersonator.apply(ctx, r, user, info); err != nil {
			filters.EndStage("constrainedimpersonation", nil)
			respondForbidden(w, r, err)
			return
		}
		filters.EndStage("constrainedimpersonation", m.Impersonation)
		if !s.flow.enter(ctx, w, info, user) {
			filters.EndStage("priorityandfairness", nil)
			return
		}
		filters.EndStage("priorityandfairness", m.Flow)
		w.Audit.Spent(audit.Queue, w.Queued)
		switch refusal, failure := s.authorizeRequest(ctx, wire.RequestAttributes(user, info)); {
		case failure != nil:
			filters.EndStage("authorization", nil)
			respondInternalError(w, r, failure)
			return
		case refusal != nil:
			filters.EndStage("authorization", nil)
			respondForbidden(w, r, refusal)
			return
		}
		filters.EndStage("authorization", m.Authorization)
		s.route(mux, w, r.WithContext(auth.WithUser(ctx, user)), info, user)
	})
}

// respondForbidden answers a request that the user may not make. As upstream, only these refusals have the
// header X-Content-Type-Options.
func respondForbidden(w *telemetry.ResponseRecorder, r *http.Request, err error) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	wire.RespondError(w, wire.ErrorFormat(r), err)
}

// respondInternalError answers with the filters' own failure, as plain text whatever the client accepts.
func respondInternalError(w http.ResponseWriter, r *http.Request, err error) {
	http.Error(w, fmt.Sprintf("Internal Server Error: %q: %v", r.RequestURI, err), http.StatusInternalServerError)
}

// route hands an authorized request to the handler of its path.
func (s *Server) route(mux *http.ServeMux, w *telemetry.ResponseRecorder, r *http.Request, info *wire.RequestInfo, user auth.User) {
	if remote, ok := s.remotes.Find(info.Path); ok {
		remote.Serve(w, r, user)
		return
	}
	if info.IsResource {
		s.resources.Serve(w, r, info, user)
		return
	}
	s.metrics.Served(w, info)
	mux.ServeHTTP(w, r)
}

// beginAudit begins the request's audit record, if the policy wants one. It fails if the record cannot
// be written as configured.
func (s *Server) beginAudit(ctx context.Context, w *telemetry.ResponseRecorder, r *http.Request, info *wire.RequestInfo, id string, user auth.User, authentication time.Duration) (context.Context, error) {
	if s.cfg.Audit == nil {
		return ctx, nil
	}
	a := wire.RequestAttributes(user, info)
	rec := s.cfg.Audit.Begin(id, &a, r)
	rec.Authenticated(authentication)
	if err := rec.Received(); err != nil {
		return nil, err
	}
	w.Audit = rec
	if rec != nil && info.LongRunning() {
		rec.LivesLong()
		w.OnBegin = func(code int) { rec.Stage(auditv1.StageResponseStarted, code) }
	}
	return audit.With(ctx, rec), nil
}

// refuseUnauthenticated answers a request before its user is known. The message goes to the audit log in case the
// client accepts no known format.
func (s *Server) refuseUnauthenticated(w *telemetry.ResponseRecorder, r *http.Request, info *wire.RequestInfo, id, message string, refusal *apierrors.StatusError) {
	a := wire.RequestAttributes(auth.User{}, info)
	w.Audit = s.cfg.Audit.Begin(id, &a, r)
	w.Audit.Status(&metav1.Status{Message: message})
	wire.RespondError(w, wire.ErrorFormat(r), refusal)
	// Upstream records only this stage.
	w.Audit.Stage(auditv1.StageResponseStarted, int(refusal.ErrStatus.Code))
	w.Audit = nil
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
func (s *Server) authorizeRequest(ctx context.Context, a auth.Attributes) (refusal *apierrors.StatusError, failure error) {
	since := time.Now()
	decision, reason, err := s.access.Authorizer().Authorize(ctx, a)
	took := time.Since(since)
	rec := audit.From(ctx)
	rec.Spent(audit.Authorization, took)
	if decision == auth.Allow {
		s.metrics.Security.Allowed.Observe(took)
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
	s.metrics.Security.AuthorizedAs(result, took)
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

// endAudit ends the request's audit record. A panic is answered with 500 and logged.
// http.ErrAbortHandler passes, because a proxy uses it to break off.
func (s *Server) endAudit(w *telemetry.ResponseRecorder, r *http.Request, info *wire.RequestInfo) {
	v := recover()
	if v == nil && w.Detached {
		return
	}
	w.Seats.Done()
	if v == nil || v == http.ErrAbortHandler {
		w.Audit.Stage(auditv1.StageResponseComplete, max(w.Code, http.StatusOK))
		if v != nil {
			s.metrics.Aborted(info)
			panic(v)
		}
		return
	}
	s.log.Error("panic while serving", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	wire.RespondError(w, wire.ErrorFormat(r), apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
	w.Audit.Stage(auditv1.StagePanic, http.StatusInternalServerError)
}

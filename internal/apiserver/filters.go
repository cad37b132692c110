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
	"github.com/knarr-project/knarr/internal/auth"
)

// newHandler handles every HTTP request: recover from panics, answer requests that need no user,
// authenticate, begin the audit record, impersonate, wait for seats, authorize, serve.
func (s *Server) newHandler() http.Handler {
	mux := s.newMux()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w, info := &codeWriter{ResponseWriter: rw, leaving: &s.leaving}, parseRequest(r)
		if s.cfg.ShutdownRetryAfter {
			done, ok := s.takeIn(rw, r, info)
			if !ok {
				giveUpBody(rw, r, s.cfg.RequestTimeout)
				return
			}
			defer done()
		}
		defer func() {
			if !w.taken {
				giveUpBody(rw, r, s.cfg.RequestTimeout)
			}
		}()
		w.ended = s.metrics.begin(w, info, r.ContentLength)
		defer w.release()
		filters, m := laps{since: time.Now()}, s.metrics.security
		began := filters.since
		defer s.finish(w, r, info)
		header := w.Header()
		id := auditID(r)
		header.Set("Audit-Id", id)
		header.Set("Cache-Control", "no-cache, private")
		if s.cfg.Front.answer(w, r, s.transport.GoAway) {
			return
		}
		limit, invalid := timeoutOf(info, s.cfg.RequestTimeout)
		if invalid != nil {
			s.refuse(w, r, info, id, invalid.ErrStatus.Message, invalid)
			return
		}
		user, err := s.access.authenticate(r)
		took := filters.lap(m.authentication)
		m.authenticatedAs(r, &user, err, took)
		if err != nil {
			s.log.Debug("a request is not authenticated", "path", r.URL.Path, "err", err)
			s.refuse(w, r, info, id, attempted(r), apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		ctx := s.traced(w, r, info, id, &user, began, filters.since)
		filters.span = w.span
		ctx, err = s.record(ctx, w, r, info, id, user, took)
		if err != nil {
			internalError(w, r, err)
			return
		}
		w.remark(user.Remarks)
		ctx, cancel := s.bound(ctx, rw, info, limit)
		defer func() { s.metrics.expired(ctx, w, info); cancel() }()
		filters.stage("audit", m.record)
		if user, err = s.inTheNameOf(ctx, r, user, info); err != nil {
			filters.stage("constrainedimpersonation", nil)
			forbid(w, r, err)
			return
		}
		filters.stage("constrainedimpersonation", m.impersonation)
		if !s.enterFlow(ctx, w, info, user) {
			filters.stage("priorityandfairness", nil)
			return
		}
		filters.stage("priorityandfairness", m.flow)
		w.audit.Spent(audit.Queue, w.waited)
		switch refusal, failure := s.authorizeRequest(ctx, requestAttributes(user, info)); {
		case failure != nil:
			filters.stage("authorization", nil)
			internalError(w, r, failure)
			return
		case refusal != nil:
			filters.stage("authorization", nil)
			forbid(w, r, refusal)
			return
		}
		filters.stage("authorization", m.authorization)
		s.route(mux, w, r.WithContext(auth.WithUser(ctx, user)), info, user)
	})
}

// forbid answers a request that the user may not make. As upstream, only these refusals have the
// header X-Content-Type-Options.
func forbid(w *codeWriter, r *http.Request, err error) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	respondError(w, plainFormat(r), err)
}

// internalError answers with the filters' own failure, as plain text whatever the client accepts.
func internalError(w http.ResponseWriter, r *http.Request, err error) {
	http.Error(w, fmt.Sprintf("Internal Server Error: %q: %v", r.RequestURI, err), http.StatusInternalServerError)
}

// route hands an authorized request to the handler of its path.
func (s *Server) route(mux *http.ServeMux, w *codeWriter, r *http.Request, info *requestInfo, user auth.User) {
	if remote, ok := s.remotes.Find(info.path); ok {
		remote.Serve(w, r, user)
		return
	}
	if info.isResource {
		s.resources.serve(w, r, info, user)
		return
	}
	s.metrics.served(w, info)
	mux.ServeHTTP(w, r)
}

// record begins the request's audit record, if the policy wants one. It fails if the record cannot
// be written as configured.
func (s *Server) record(ctx context.Context, w *codeWriter, r *http.Request, info *requestInfo, id string, user auth.User, authentication time.Duration) (context.Context, error) {
	if s.cfg.Audit == nil {
		return ctx, nil
	}
	a := requestAttributes(user, info)
	rec := s.cfg.Audit.Begin(id, &a, r)
	rec.Authenticated(authentication)
	if err := rec.Received(); err != nil {
		return nil, err
	}
	w.audit = rec
	if rec != nil && info.longRunning() {
		rec.LivesLong()
		w.began = func(code int) { rec.Stage(auditv1.StageResponseStarted, code) }
	}
	return audit.With(ctx, rec), nil
}

// refuse answers a request before its user is known. The message goes to the audit log in case the
// client accepts no known format.
func (s *Server) refuse(w *codeWriter, r *http.Request, info *requestInfo, id, message string, refusal *apierrors.StatusError) {
	a := requestAttributes(auth.User{}, info)
	w.audit = s.cfg.Audit.Begin(id, &a, r)
	w.audit.Status(&metav1.Status{Message: message})
	respondError(w, plainFormat(r), refusal)
	// Upstream records only this stage.
	w.audit.Stage(auditv1.StageResponseStarted, int(refusal.ErrStatus.Code))
	w.audit = nil
}

// attempted returns upstream's message with the kinds of credentials that failed.
func attempted(r *http.Request) string {
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

// inTheNameOf returns the impersonated user, or user itself if the request impersonates nobody.
func (s *Server) inTheNameOf(ctx context.Context, r *http.Request, user auth.User, info *requestInfo) (auth.User, error) {
	asked, since := r.Header.Get(impersonateUser) != "", time.Now()
	as, constraint, err := s.impersonate(ctx, r, user, requestAttributes(user, info))
	if err != nil {
		return user, err
	}
	if asked {
		audit.From(ctx).Spent(audit.Impersonation, time.Since(since))
		audit.From(ctx).Impersonate(as, constraint)
	}
	return as, nil
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
		s.metrics.security.allowed.observe(took)
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
	s.metrics.security.authorizedAs(result, took)
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

// finish ends the request's audit record. A panic is answered with 500 and logged.
// http.ErrAbortHandler passes, because a proxy uses it to break off.
func (s *Server) finish(w *codeWriter, r *http.Request, info *requestInfo) {
	v := recover()
	if v == nil && w.taken {
		return
	}
	w.seats.Done()
	if v == nil || v == http.ErrAbortHandler {
		w.audit.Stage(auditv1.StageResponseComplete, max(w.code, http.StatusOK))
		if v != nil {
			s.metrics.aborted(info)
			panic(v)
		}
		return
	}
	s.log.Error("panic while serving", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	respondError(w, plainFormat(r), apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
	w.audit.Stage(auditv1.StagePanic, http.StatusInternalServerError)
}

func requestAttributes(user auth.User, info *requestInfo) auth.Attributes {
	if !info.isResource {
		return auth.Attributes{User: user, Verb: info.verb, Path: info.path}
	}
	a := auth.Attributes{
		User: user, Verb: info.verb, Namespace: info.namespace, Group: info.gvr.Group, Version: info.gvr.Version,
		Resource: info.gvr.Resource, Subresource: info.subresource, Name: info.name,
	}
	switch info.verb {
	case "list", "watch", "deletecollection":
		a.FieldSelector, a.LabelSelector = info.query.Get("fieldSelector"), info.query.Get("labelSelector")
	}
	return a
}

// longRunning reports whether the request has no deadline.
func (i *requestInfo) longRunning() bool {
	if i.verb == "watch" || i.upgrade {
		return true
	}
	switch i.subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/auth"
)

// newHandler is the way of every HTTP request: recover, authenticate, impersonate, (audit), authorize, serve.
func (s *Server) newHandler() http.Handler {
	mux := s.newMux()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w, info := &codeWriter{ResponseWriter: rw}, parseRequest(r)
		defer s.metrics.begin(w, info)()
		defer s.recoverPanic(w, r)
		header := w.Header()
		header.Set("Audit-Id", auditID(r))
		header.Set("Cache-Control", "no-cache, private")
		user, err := s.identify(r, info)
		if err != nil {
			respondError(w, jsonFormat, err)
			return
		}
		ctx := auth.WithUser(r.Context(), user)
		ctx, cancel := s.bound(ctx, info)
		defer cancel()
		r = r.WithContext(ctx)
		if remote, ok := s.remotes.Find(info.path); ok {
			remote.Serve(w, r, user)
			return
		}
		if info.isResource {
			s.serveResource(w, r, info, user)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// bound gives a request its end: a deadline or, where it lives as long as its ends want, that of the server.
func (s *Server) bound(ctx context.Context, info *requestInfo) (context.Context, context.CancelFunc) {
	if !info.longRunning() {
		return context.WithTimeout(ctx, s.timeout(info))
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// identify finds out who the request is from, or is made in the name of, and whether they may make it.
func (s *Server) identify(r *http.Request, info *requestInfo) (auth.User, error) {
	user, err := s.authenticate(r)
	if err != nil {
		s.log.Debug("a request is not authenticated", "path", r.URL.Path, "err", err)
		s.metrics.authentication.WithLabelValues("failure").Inc()
		return user, apierrors.NewUnauthorized("Unauthorized")
	}
	if user, err = s.impersonate(r.Context(), r, user); err != nil {
		return user, err
	}
	return user, s.authorize(r.Context(), requestAttributes(user, info))
}

// timeout is what the client asks for, but not more than the server allows.
func (s *Server) timeout(info *requestInfo) time.Duration {
	if text := info.query.Get("timeout"); text != "" {
		if asked, err := time.ParseDuration(text); err == nil && asked > 0 && asked < s.cfg.RequestTimeout {
			return asked
		}
	}
	return s.cfg.RequestTimeout
}

func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= 64 {
		return id
	}
	return uuid.NewString()
}

// recoverPanic answers 500 and logs; http.ErrAbortHandler passes, it is how a proxy breaks off.
func (s *Server) recoverPanic(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.log.Error("panic while serving", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	respondError(w, jsonFormat, apierrors.NewInternalError(fmt.Errorf("this request caused apiserver to panic. Look in the logs for details")))
}

func (s *Server) authenticate(r *http.Request) (auth.User, error) {
	a := s.security.Load().Authenticator
	if a == nil {
		return auth.Anonymous(), nil
	}
	user, ok, err := a.Authenticate(r)
	if err != nil {
		return auth.User{}, err
	}
	if !ok {
		return auth.User{}, errNoCredentials
	}
	return user, nil
}

var errNoCredentials = errors.New("no credentials")

// authorize asks the authorizer; a refusal is the Forbidden error that users see.
func (s *Server) authorize(ctx context.Context, a auth.Attributes) error {
	return auth.Check(ctx, s.authorizer(), a)
}

// authorizer allows nothing until there is one.
func (s *Server) authorizer() auth.Authorizer {
	if z := s.security.Load().Authorizer; z != nil {
		return z
	}
	return auth.Authorizers{}
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

// longRunning requests have no deadline.
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

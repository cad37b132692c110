package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/auth"
)

// newHandler is the way of every HTTP request: recover, authenticate, impersonate, (audit), authorize, serve.
func (s *Server) newHandler() http.Handler {
	mux := s.newMux()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recoverPanic(w, r)
		header := w.Header()
		header.Set("Audit-Id", auditID(r))
		header.Set("Cache-Control", "no-cache, private")
		info := parseRequest(r)
		user, err := s.authenticate(r)
		if err != nil {
			respondError(w, jsonFormat, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		ctx := r.Context()
		if user, err = s.impersonate(ctx, r, user); err != nil {
			respondError(w, jsonFormat, err)
			return
		}
		if err := s.authorize(ctx, requestAttributes(user, info)); err != nil {
			respondError(w, jsonFormat, err)
			return
		}
		ctx = auth.WithUser(ctx, user)
		if !info.longRunning() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.cfg.RequestTimeout)
			defer cancel()
		}
		r = r.WithContext(ctx)
		if info.isResource {
			s.serveResource(w, r, info, user)
			return
		}
		mux.ServeHTTP(w, r)
	})
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

var anonymous = auth.User{Name: auth.UserAnonymous, Groups: []string{auth.GroupUnauthenticated}}

func (s *Server) authenticate(r *http.Request) (auth.User, error) {
	a := s.security.Load().authenticator
	if a == nil {
		return anonymous, nil
	}
	user, ok, err := a.Authenticate(r)
	if err != nil {
		return auth.User{}, err
	}
	if !ok {
		return auth.User{}, errors.New("no credentials")
	}
	return user, nil
}

// authorize asks the authorizer; a refusal is the Forbidden error that users see.
func (s *Server) authorize(ctx context.Context, a auth.Attributes) error {
	authorizer := s.security.Load().authorizer
	decision, reason := auth.NoOpinion, ""
	var err error
	if authorizer != nil {
		decision, reason, err = authorizer.Authorize(ctx, a)
	}
	if decision == auth.Allow {
		return nil
	}
	if err != nil && reason == "" {
		reason = err.Error()
	}
	return forbiddenError(a, reason)
}

// forbiddenError is upstream's wording.
func forbiddenError(a auth.Attributes, reason string) error {
	var text string
	switch {
	case a.Path != "":
		text = fmt.Sprintf("User %q cannot %s path %q", a.User.Name, a.Verb, a.Path)
	default:
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		text = fmt.Sprintf("User %q cannot %s resource %q in API group %q ", a.User.Name, a.Verb, resource, a.Group)
		if a.Namespace != "" {
			text += fmt.Sprintf("in the namespace %q", a.Namespace)
		} else {
			text += "at the cluster scope"
		}
	}
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New(text))
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
	if i.verb == "watch" {
		return true
	}
	switch i.subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

package server

import (
	"net/http"
	"strings"

	"github.com/knarr-project/knarr/internal/auth"
)

// protect passes a request on if its user is authorized for nodes/<subresource> of this node.
func (s *Server) protect(next http.Handler) http.Handler {
	if s.Authenticator == nil || s.Authorizer == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the node's API has no authentication configured", http.StatusServiceUnavailable)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok, err := s.Authenticator.Authenticate(r)
		if err != nil || !ok {
			if err != nil {
				s.Log.Debug("unauthenticated request to the node's API", "path", r.URL.Path, "error", err)
			}
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		var reason string
		for _, sub := range subresources(r.URL.Path) {
			a := auth.Attributes{User: user, Verb: verb(r.Method), Version: "v1", Resource: "nodes", Subresource: sub, Name: s.NodeName}
			var d auth.Decision
			if d, reason, err = s.Authorizer.Authorize(r.Context(), a); err != nil {
				s.Log.Warn("cannot authorize a request to the node's API", "path", r.URL.Path, "error", err)
				http.Error(w, "Authorization error (user="+user.Name+")", http.StatusInternalServerError)
				return
			}
			if d == auth.Allow {
				next.ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), user)))
				return
			}
		}
		s.Log.Debug("forbidden request to the node's API", "user", user.Name, "path", r.URL.Path, "reason", reason)
		subs := subresources(r.URL.Path)
		http.Error(w, "Forbidden (user="+user.Name+", verb="+verb(r.Method)+", resource=nodes, subresource(s)=["+strings.Join(subs, " ")+"])", http.StatusForbidden)
	})
}

func verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return "get"
}

// subresources lists the subresources of nodes that allow the path; any one suffices. The
// fine-grained ones of KEP-2862 come first.
func subresources(path string) []string {
	under := func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") }
	switch {
	case under("/stats"):
		return []string{"stats"}
	case under("/metrics"):
		return []string{"metrics"}
	case under("/logs"):
		return []string{"log"}
	case under("/checkpoint"):
		return []string{"checkpoint"}
	case under("/pods"), under("/runningpods"):
		return []string{"pods", "proxy"}
	case under("/healthz"):
		return []string{"healthz", "proxy"}
	case under("/statusz"):
		return []string{"statusz"}
	case under("/flagz"):
		return []string{"configz"}
	case under("/configz"):
		return []string{"configz", "proxy"}
	}
	return []string{"proxy"}
}

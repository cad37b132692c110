package apiserver

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api/openapi"
	"github.com/knarr-project/knarr/internal/apiserver/aggregation"
)

// newMux serves what is not a resource.
func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, kind := range []string{"healthz", "livez", "readyz"} {
		h := s.serveHealth(kind)
		mux.HandleFunc("/"+kind, h)
		mux.HandleFunc("/"+kind+"/", h)
	}
	mux.HandleFunc("GET /version", serveVersion)
	mux.HandleFunc("GET /version/", serveVersion)
	mux.Handle("/api", s.discovery)
	mux.Handle("/api/", s.discovery)
	mux.Handle("/apis", s.discovery)
	mux.Handle("/apis/", s.discovery)
	mux.HandleFunc("GET "+flowControlPath, s.serveFlowControl)
	mux.Handle("GET /metrics", s.metrics.handler())
	mux.Handle("GET /metrics/slis", s.metrics.health.handler())
	mux.Handle("/openapi/", openapi.New(openapi.Providers{s.customDocs, aggregation.OpenAPI{Aggregator: s.remotes}}))
	profiles(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if h, ok := s.security.Load().Paths[r.URL.Path]; ok {
			h.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			s.serveRoot(w)
			return
		}
		notFoundPath(w)
	})
	return mux
}

// profiles serves the process's own profiles (CPU, heap, goroutines ...) where upstream does; like there, / does not list them.
// Who may see them is a matter of authorization, as for every path.
func profiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// notFoundPath is upstream's answer to a path that nobody serves: plain text, which clients know.
func notFoundPath(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte("404 page not found\n"))
}

func serveVersion(w http.ResponseWriter, r *http.Request) {
	body, err := json.MarshalIndent(Version, "", "  ")
	if err != nil {
		respondError(w, jsonFormat, err)
		return
	}
	respond(w, http.StatusOK, jsonFormat, body)
}

// serveRoot lists the paths there are.
func (s *Server) serveRoot(w http.ResponseWriter) {
	found := map[string]bool{}
	for _, path := range []string{"/.well-known/openid-configuration", "/api", "/apis", "/apis/", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openid/v1/jwks", "/version"} {
		found[path] = true
	}
	for _, kind := range []string{"healthz", "livez", "readyz"} {
		found["/"+kind] = true
		for _, c := range s.checks(kind) {
			found["/"+kind+"/"+c.name] = true
		}
	}
	for _, gv := range s.discovery.GroupVersions() {
		if gv.Group == "" {
			found["/api/"+gv.Version] = true
			continue
		}
		found["/apis/"+gv.Group], found["/apis/"+gv.String()] = true, true
	}
	body, err := json.MarshalIndent(metav1.RootPaths{Paths: slices.Sorted(maps.Keys(found))}, "", "  ")
	if err != nil {
		respondError(w, jsonFormat, err)
		return
	}
	respond(w, http.StatusOK, jsonFormat, body)
}

// errMethod is upstream's 405.
var errMethod = apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "",
	"the server does not allow this method on the requested resource", 0, false)

package apiserver

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api/openapi"
	"github.com/knarr-project/knarr/internal/apiserver/aggregation"
	"github.com/knarr-project/knarr/internal/apiserver/rest"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/version"
	"github.com/knarr-project/knarr/internal/zpages"
)

// newMux serves the paths that are no resources.
func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, kind := range []string{"healthz", "livez", "readyz"} {
		h := s.serveHealth(kind)
		mux.Handle("/"+kind, h)
		mux.Handle("/"+kind+"/", h)
	}
	for path, h := range map[string]http.HandlerFunc{"/version": serveVersion, "/api": s.serveDiscovery, "/apis": s.serveDiscovery} {
		mux.HandleFunc(path, h)
		mux.HandleFunc(path+"/", h)
	}
	about := []string{"/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"}
	if s.cfg.Settings != nil {
		mux.HandleFunc("/flagz", zpages.Flagz("apiserver", s.cfg.Settings))
		about = slices.Insert(about, 0, "/flagz")
	}
	mux.HandleFunc("/statusz", zpages.Statusz("apiserver", time.Now(), time.Now, about...))
	mux.HandleFunc(flowControlPath, s.flow.serve)
	mux.HandleFunc(ask.Path, s.insight.serve)
	mux.Handle("/metrics", s.metrics.Handler())
	mux.Handle("/metrics/slis", s.metrics.Health.Handler())
	documents := openapi.New(openapi.Providers{s.customDocs, aggregation.OpenAPI{Aggregator: s.remotes}}, s.cfg.Switches)
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/"} {
		mux.Handle(path, documents)
	}
	if !s.cfg.NoProfiling {
		zpages.Debug(mux)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if h, ok := s.access.path(r.URL.Path); ok {
			if media, ok := tokenDocuments[r.URL.Path]; ok {
				serveDocument(w, r, media, h)
				return
			}
			h.ServeHTTP(w, r) // it checks the method
			return
		}
		if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			s.serveRoot(w)
			return
		}
		wire.NotFoundPath(w)
	})
	return mux
}

// tokenDocuments are the documents with which others verify service account tokens, with their
// media types.
var tokenDocuments = map[string]string{"/.well-known/openid-configuration": wire.MediaJSON, "/openid/v1/jwks": "application/jwk-set+json"}

// serveDocument serves a read-only document, after checking method and Accept header.
func serveDocument(w http.ResponseWriter, r *http.Request, media string, h http.Handler) {
	var err error
	if r.Method != http.MethodGet {
		err = wire.ErrMethodNotAllowed
	} else if !wire.AcceptsAny(r.Header.Get("Accept"), media) {
		err = wire.NotAcceptableOf(media)
	}
	if err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return
	}
	h.ServeHTTP(w, r)
}

func serveVersion(w http.ResponseWriter, r *http.Request) {
	if err := rest.CheckDocument(r, wire.MediaJSON); err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return
	}
	body, err := json.MarshalIndent(version.Info(), "", "  ")
	if err != nil {
		wire.RespondError(w, wire.JSONFormat, err)
		return
	}
	wire.Respond(w, http.StatusOK, wire.JSONFormat, body)
}

// serveDiscovery serves discovery documents. Those of built-in group versions check method and
// media type like their kinds; as upstream, the others accept any method.
func (s *Server) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	parts := wire.SplitPath(r.URL.Path)
	var err error
	switch {
	case parts[0] == "api" && len(parts) == 2 && !s.endpoints.HasBuiltInVersion(schema.GroupVersion{Version: parts[1]}),
		len(parts) == 3 && !s.endpoints.HasBuiltInVersion(schema.GroupVersion{Group: parts[1], Version: parts[2]}) && s.endpoints.HasGroup(parts[1]):
		err = wire.ErrPathNotFound
	case parts[0] == "api", len(parts) == 3 && s.endpoints.HasGroup(parts[1]):
		err = rest.CheckDocument(r, wire.MediaJSON, wire.MediaYAML, wire.MediaProtobuf)
	}
	if err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return
	}
	// Clients read these documents rarely, and right after they have defined a kind.
	if err := s.shared.CatchUp(r.Context()); err != nil {
		s.log.Debug("discovery may be out of date", "err", err)
	}
	s.discovery.ServeHTTP(w, r)
}

// serveRoot lists the existing paths.
func (s *Server) serveRoot(w http.ResponseWriter) {
	found := map[string]bool{}
	for _, path := range []string{"/api", "/apis", "/apis/", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/statusz", "/version"} {
		found[path] = true
	}
	for path := range tokenDocuments {
		if _, served := s.access.path(path); served {
			found[path] = true
		}
	}
	if s.cfg.Settings != nil {
		found["/flagz"] = true
	}
	for _, kind := range []string{"healthz", "livez", "readyz"} {
		found["/"+kind] = true
		for _, c := range s.checks(kind) {
			found["/"+kind+"/"+c.Name] = true
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
		wire.RespondError(w, wire.JSONFormat, err)
		return
	}
	wire.Respond(w, http.StatusOK, wire.JSONFormat, body)
}

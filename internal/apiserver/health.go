package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// check is one part of /healthz, /livez or /readyz.
type check struct {
	name string
	run  func(ctx context.Context) error
}

func (s *Server) checks(kind string) []check {
	ping := check{"ping", func(context.Context) error { return nil }}
	etcd := check{"etcd", func(ctx context.Context) error {
		_, err := s.store.Revision(ctx)
		return err
	}}
	started := check{"poststarthook/start", func(context.Context) error {
		if !s.ready.Load() {
			return fmt.Errorf("not finished")
		}
		return nil
	}}
	shutdown := check{"shutdown", func(context.Context) error { return s.ctx.Err() }}
	switch kind {
	case "livez":
		return []check{ping, etcd}
	case "readyz":
		return []check{ping, etcd, started, shutdown}
	}
	return []check{ping, etcd, started}
}

// serveHealth answers "ok" when all checks pass; each of them is a path of its own, and ?verbose shows them all.
func (s *Server) serveHealth(kind string) http.HandlerFunc {
	checks := s.checks(kind)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		one := strings.Trim(strings.TrimPrefix(r.URL.Path, "/"+kind), "/")
		excluded := map[string]bool{}
		for _, name := range r.URL.Query()["exclude"] {
			excluded[name] = true
		}
		var out strings.Builder
		failed, found := false, one == ""
		for _, c := range checks {
			if one != "" && c.name != one {
				continue
			}
			found = true
			if excluded[c.name] {
				fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.name)
				continue
			}
			if err := c.run(r.Context()); err != nil {
				failed = true
				s.log.Debug("a health check fails", "kind", kind, "check", c.name, "err", err)
				fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", c.name)
				continue
			}
			fmt.Fprintf(&out, "[+]%s ok\n", c.name)
		}
		_, verbose := r.URL.Query()["verbose"]
		switch {
		case !found:
			http.NotFound(w, r)
		case failed:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "%s%s check failed\n", out.String(), kind)
		case verbose && one == "":
			fmt.Fprintf(w, "%s%s check passed\n", out.String(), kind)
		default:
			fmt.Fprint(w, "ok")
		}
	}
}

// Version is what /version says: the API that is spoken.
var Version = version.Info{
	Major: "1", Minor: "36", EmulationMajor: "1", EmulationMinor: "36", MinCompatibilityMajor: "1", MinCompatibilityMinor: "35",
	GitVersion: "v1.36.3+knarr", GitTreeState: "clean", BuildDate: "1970-01-01T00:00:00Z", Compiler: "gc",
	GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
}

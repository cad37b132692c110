package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/version"

	knarr "github.com/knarr-project/knarr/internal/version"
)

// check is one part of /healthz, /livez or /readyz.
type check struct {
	name string
	run  func(ctx context.Context) error
}

var errNotFinished = errors.New("not finished")

// finished is a check of something that happens once.
func finished(name string, done <-chan struct{}) check {
	return check{name, func(context.Context) error {
		select {
		case <-done:
			return nil
		default:
			return errNotFinished
		}
	}}
}

// checks have upstream's names where they tell of the same things.
func (s *Server) checks(kind string) []check {
	fine := func(context.Context) error { return nil }
	etcd := func(ctx context.Context) error {
		_, err := s.store.Revision(ctx)
		return err
	}
	checks := []check{{"ping", fine}, {"log", fine}, {"etcd", etcd}}
	if kind == "readyz" {
		checks = append(checks, check{"etcd-readiness", etcd}, finished("informer-sync", s.remotes.Synced()))
	}
	if sealed, ok := s.cfg.Store.(sealedStore); ok && kind != "livez" {
		checks = append(checks, check{"kms-providers", sealed.Health})
	}
	started := func(names ...string) {
		for _, name := range names {
			checks = append(checks, finished("poststarthook/"+name, s.started))
		}
	}
	aggregated := func(names ...string) {
		for _, name := range names {
			checks = append(checks, finished(name, s.remotes.Synced()))
		}
	}
	// In upstream's order. Its hooks that run after the start are told apart only by their names here: they are one start, after which all of
	// them pass, or the part that they belong to upstream.
	started("start-apiserver-admission-initializer", "generic-apiserver-start-informers")
	if s.flow != nil {
		started("priority-and-fairness-config-consumer", "priority-and-fairness-filter")
	}
	started("start-apiextensions-informers", "start-apiextensions-controllers", "crd-informer-synced", "start-system-namespaces-controller",
		"start-cluster-authentication-info-controller", "start-legacy-token-tracking-controller", "rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes")
	if s.flow != nil {
		started("priority-and-fairness-config-producer")
	}
	started("bootstrap-controller", "start-kubernetes-service-cidr-controller")
	aggregated("poststarthook/start-kube-aggregator-informers", "poststarthook/apiservice-status-local-available-controller",
		"poststarthook/apiservice-status-remote-available-controller", "poststarthook/apiservice-registration-controller", "poststarthook/apiservice-discovery-controller",
		"poststarthook/kube-apiserver-autoregistration", "autoregister-completion", "poststarthook/apiservice-openapi-controller", "poststarthook/apiservice-openapiv3-controller")
	if kind == "readyz" {
		checks = append(checks, check{"shutdown", func(context.Context) error {
			if s.stopping.Load() {
				return errors.New("process is shutting down")
			}
			return nil
		}})
	}
	return checks
}

// serveHealth answers "ok" when all checks pass; each of them is a path of its own, and ?verbose shows them all.
func (s *Server) serveHealth(kind string) http.HandlerFunc {
	checks := s.checks(kind)
	return func(w http.ResponseWriter, r *http.Request) {
		if one, ok := strings.CutPrefix(r.URL.Path, "/"+kind+"/"); ok {
			s.serveCheck(w, r, kind, one, checks)
			return
		}
		query := r.URL.Query()
		excluded := query["exclude"]
		unknown := slices.DeleteFunc(slices.Clone(excluded), func(name string) bool {
			return slices.ContainsFunc(checks, func(c check) bool { return c.name == name })
		})
		var out strings.Builder
		failed := false
		for _, c := range checks {
			if slices.Contains(excluded, c.name) {
				fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.name)
				continue
			}
			if err := s.metrics.health.run(r.Context(), kind, &c); err != nil {
				failed = true
				s.log.Debug("a health check fails", "kind", kind, "check", c.name, "err", err)
				fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", c.name)
				continue
			}
			fmt.Fprintf(&out, "[+]%s ok\n", c.name)
		}
		if len(unknown) > 0 {
			fmt.Fprintf(&out, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(unknown))
		}
		plainText(w)
		switch {
		case failed:
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprintf(w, "%s%s check failed\n", out.String(), kind) // the client may be gone, here and below
		case query.Has("verbose"):
			_, _ = fmt.Fprintf(w, "%s%s check passed\n", out.String(), kind)
		default:
			_, _ = fmt.Fprint(w, "ok")
		}
	}
}

// serveCheck answers for one check.
func (s *Server) serveCheck(w http.ResponseWriter, r *http.Request, kind, name string, checks []check) {
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		notFoundPath(w)
		return
	}
	plainText(w)
	if err := s.metrics.health.run(r.Context(), kind, &checks[i]); err != nil {
		s.log.Debug("a health check fails", "kind", kind, "check", name, "err", err)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "internal server error: %v\n", err)
		return
	}
	_, _ = fmt.Fprint(w, "ok")
}

func plainText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

func quoted(names []string) string {
	for i, name := range names {
		names[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(names, ", ")
}

// Version is what /version says: the API that is spoken.
var Version = version.Info{
	Major: knarr.Major, Minor: knarr.Minor, EmulationMajor: knarr.Major, EmulationMinor: knarr.Minor, MinCompatibilityMajor: "1", MinCompatibilityMinor: "35",
	GitVersion: knarr.Kubernetes + "+knarr", GitTreeState: "clean", BuildDate: "1970-01-01T00:00:00Z", Compiler: "gc",
	GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
}

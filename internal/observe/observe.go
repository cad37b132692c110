package observe

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/zpages"
)

// Config holds the component's data and who may read it.
type Config struct {
	// Component is upstream's name of the component, such as kube-scheduler.
	Component string
	TLS       *tls.Config
	// Authenticator returns no user for clients without credentials; they are system:anonymous.
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer
	// Health, Alive and Ready are the checks of /healthz, /livez and /readyz.
	Health, Alive, Ready []zpages.Check
	Collectors           []prometheus.Collector
	// Configz is the content of /configz, under upstream's name of the configuration.
	Configz map[string]any
	// Settings returns the process's flags for /flagz. If nil, the page does not exist.
	Settings func() map[string]string
	Log      *slog.Logger
}

// Listen opens the socket. run serves until its context ends.
func Listen(ctx context.Context, address string, c Config) (run func(context.Context) error, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("health and metrics (--bind-address, --secure-port): %w", err)
	}
	h := &http.Server{
		Handler: c.Handler(), TLSConfig: c.TLS, ReadHeaderTimeout: 30 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 1 << 20,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = h.Close() })
		defer stop()
		if err := h.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}

// open lists the paths that everyone can read, as in upstream's --authorization-always-allow-paths.
var open = []string{"/healthz", "/livez", "/readyz"}

// Handler serves the pages to authorized clients.
func (c *Config) Handler() http.Handler {
	mux := http.NewServeMux()
	results := zpages.NewHealthMetrics()
	for kind, checks := range map[string][]zpages.Check{"healthz": c.Health, "livez": c.Alive, "readyz": c.Ready} {
		h := &zpages.Health{Kind: kind, Checks: checks, Results: results, NotFound: http.NotFound, Failed: func(check string, err error) {
			c.Log.Warn("a health check failed", "kind", kind, "check", check, "error", err)
		}}
		mux.Handle("/"+kind, h)
		mux.Handle("/"+kind+"/", h)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(zpages.Collectors()...)
	registry.MustRegister(c.Collectors...)
	mux.Handle("/metrics", zpages.Metrics(registry))
	mux.Handle("/metrics/slis", results.Handler())
	zpages.Debug(mux)
	mux.HandleFunc("/configz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c.Configz) // the client may have disconnected
	})
	about := []string{"/configz", "/healthz", "/livez", "/metrics", "/readyz"}
	if c.Settings != nil {
		mux.HandleFunc("/flagz", zpages.Flagz(c.Component, c.Settings))
		about = slices.Insert(about, 1, "/flagz")
	}
	mux.HandleFunc("/statusz", zpages.Statusz(c.Component, time.Now(), time.Now, about...))
	return c.protect(mux)
}

// protect passes on requests that are authorized for their path.
func (c *Config) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(open, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		user, ok, err := c.Authenticator.Authenticate(r)
		if err != nil {
			c.Log.Debug("unauthenticated request", "path", r.URL.Path, "error", err)
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
			return
		}
		if !ok {
			user = auth.User{Name: auth.UserAnonymous, Groups: []string{auth.GroupUnauthenticated}}
		}
		verb := strings.ToLower(r.Method)
		decision, reason, err := c.Authorizer.Authorize(r.Context(), auth.Attributes{User: user, Verb: verb, Path: r.URL.Path})
		switch {
		case err != nil:
			c.Log.Warn("cannot authorize a request", "user", user.Name, "path", r.URL.Path, "error", err)
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal Server Error: "+err.Error())
		case decision != auth.Allow:
			message := fmt.Sprintf("forbidden: User %q cannot %s path %q", user.Name, verb, r.URL.Path)
			if reason != "" {
				message += ": " + reason
			}
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, message)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// refuse answers with a Status, as the API server does.
func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: message, Reason: reason, Code: code}
	if code == http.StatusForbidden {
		status.Details = &metav1.StatusDetails{}
	}
	body, err := json.MarshalIndent(status, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_, _ = w.Write(body) // the client may have disconnected
}

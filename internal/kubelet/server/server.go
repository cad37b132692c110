package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/kubelet/stats"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/zpages"
)

// Pods gives the server access to the node's pods.
type Pods interface {
	// Find finds a pod. An empty uid matches any pod of the name.
	Find(namespace, name string, uid types.UID) (worker.View, bool)
	Views() []worker.View
}

// Config configures the server.
type Config struct {
	Listen        string
	TLS           *tls.Config
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer
	NodeName      string
	Runtime       internalapi.RuntimeService
	Images        internalapi.ImageManagerService
	Pods          Pods
	LogsDir       string
	// SystemLogs is the folder that /logs/ serves; "" disables it.
	SystemLogs string
	// Journalctl is the program that reads the system's journal; "" if the machine has none.
	Journalctl string
	// Switches turn groups of handlers off or on.
	Switches Switches
	// Checkpoints is the folder of containers' checkpoints; "" disables them.
	Checkpoints string
	// Healthy returns an error if the node agent does not work.
	Healthy func() error
	// Configz is the content of /configz.
	Configz any
	// Settings returns the process's flags for /flagz. If nil, the page does not exist.
	Settings func() map[string]string
	Stats    *stats.Collector
	Metrics  http.Handler
	Probes   http.Handler
	// Tracer records the requests; may be nil.
	Tracer *trace.Tracer
	// Spans serves what happened on the node without a write; may be nil.
	Spans http.Handler
	// ReadOnly serves health, pods, statistics and metrics without authentication.
	ReadOnly bool
	// Measure measures requests; may be nil.
	Measure func(http.Handler) http.Handler
	Log     *slog.Logger
}

// Server is the node's API.
type Server struct{ Config }

// Listen opens the socket; the returned run serves requests.
func Listen(ctx context.Context, c Config) (run func(context.Context), port int, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, 0, fmt.Errorf("node API: %w", err)
	}
	s := &Server{c}
	h := &http.Server{
		Handler: s.Handler(), TLSConfig: c.TLS, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
		// Requests keep the values of ctx, such as the silent logger of libraries, but not its
		// cancellation.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	port = l.Addr().(*net.TCPAddr).Port
	return func(ctx context.Context) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			var err error
			if c.TLS != nil {
				err = h.ServeTLS(l, "", "")
			} else {
				err = h.Serve(l)
			}
			if err != nil && !errors.Is(err, http.ErrServerClosed) {
				c.Log.Error("the node's API ended", "error", err)
			}
		}()
		<-ctx.Done()
		h.Close() // streams do not end on their own
		<-done
	}, port, nil
}

// Handler routes requests after authentication and authorization.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	results := zpages.NewHealthMetrics()
	health := s.health(results)
	mux.Handle("/healthz", health)
	mux.Handle("/healthz/", health)
	mux.Handle("GET /metrics/slis", results.Handler())
	mux.HandleFunc("GET /pods", s.pods)
	about := []string{"/configz", "/healthz", "/metrics", "/statusz"}
	if s.Settings != nil && !s.ReadOnly {
		mux.HandleFunc("/flagz", zpages.Flagz("kubelet", s.Settings))
		about = slices.Insert(about, 1, "/flagz")
	}
	mux.HandleFunc("/statusz", zpages.Statusz("kubelet", time.Now(), time.Now, about...))
	if !s.ReadOnly {
		s.debugging(mux)
	}
	if s.Checkpoints != "" && !s.ReadOnly {
		mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	}
	if s.Stats != nil {
		mux.HandleFunc("GET /stats/summary", s.Stats.ServeSummary)
		mux.HandleFunc("GET /metrics/resource", s.Stats.ServeResource)
		mux.HandleFunc("GET /metrics/cadvisor", s.Stats.ServeCadvisor)
	}
	if s.Spans != nil && !s.ReadOnly {
		mux.Handle("GET "+spans.Path, s.Spans)
	}
	if s.Metrics != nil {
		mux.Handle("GET /metrics", s.Metrics)
	}
	if s.Probes != nil {
		mux.Handle("GET /metrics/probes", s.Probes)
	}
	var h http.Handler = s.traced(mux)
	if s.ReadOnly {
		h = onlyReads(h)
	} else {
		h = s.protect(h)
	}
	if s.Measure != nil {
		return s.Measure(h)
	}
	return h
}

// onlyReads refuses every method but GET and HEAD.
func onlyReads(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "this port serves reads only", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// traced records requests as spans. Their callers are authenticated, so their decision on sampling
// counts.
func (s *Server) traced(next http.Handler) http.Handler {
	if s.Tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		ctx, span := s.Tracer.Serve(r.Context(), r, r.Method+" /"+first, !s.ReadOnly, time.Now())
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// health is the page /healthz; the results of its checks are at /metrics/slis (KEP-3466).
func (s *Server) health(results *zpages.HealthMetrics) http.Handler {
	fine := func(context.Context) error { return nil }
	return &zpages.Health{
		Kind: "healthz", Results: results, NotFound: http.NotFound,
		Checks: []zpages.Check{{Name: "ping", Run: fine}, {Name: "log", Run: fine}, {Name: "syncloop", Run: func(context.Context) error {
			if s.Healthy == nil {
				return nil
			}
			return s.Healthy()
		}}},
		Failed: func(check string, err error) {
			s.Log.Warn("a health check of the node fails", "check", check, "error", err)
		},
	}
}

func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	list := &corev1.PodList{}
	for _, v := range s.Pods.Views() {
		p := v.Pod.DeepCopy()
		p.Status = v.Status
		list.Items = append(list.Items, *p)
	}
	write(w, list)
}

// runningPods lists only running pods, in the reduced shape that upstream derives from the runtime.
func (s *Server) runningPods(w http.ResponseWriter, _ *http.Request) {
	list := &corev1.PodList{}
	for _, v := range s.Pods.Views() {
		p := corev1.Pod{}
		p.Name, p.Namespace, p.UID = v.Pod.Name, v.Pod.Namespace, v.Pod.UID
		for _, c := range v.Containers {
			if c.Running() {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name(), Image: c.GetImage().GetImage()})
			}
		}
		if len(p.Spec.Containers) > 0 {
			list.Items = append(list.Items, p)
		}
	}
	write(w, list)
}

func write(w http.ResponseWriter, obj runtime.Object) {
	raw, err := runtime.Encode(api.Codecs.LegacyCodec(schema.GroupVersion{Version: "v1"}), obj)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw)
}

package zpages

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Check is one part of a health page.
type Check struct {
	Name string
	// Group is a name that excludes all its checks together, or "".
	Group string
	Run   func(ctx context.Context) error
}

// Health is a health page, such as /livez. It answers "ok" if all checks pass. Each check has its
// own path below; ?verbose shows all results.
type Health struct {
	Kind    string // the path without its slash
	Checks  []Check
	Results *HealthMetrics
	// Failed is called with the error of a failed check. Clients do not see the error.
	Failed func(check string, err error)
	// NotFound answers requests for unknown checks.
	NotFound http.HandlerFunc
}

// ServeHTTP implements http.Handler.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if one, ok := strings.CutPrefix(r.URL.Path, "/"+h.Kind+"/"); ok {
		h.serveOne(w, r, one)
		return
	}
	query := r.URL.Query()
	out, failed := h.all(r.Context(), query["exclude"])
	plainText(w)
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		// The client may have disconnected, here and below.
		_, _ = fmt.Fprintf(w, "%s%s check failed\n", out, h.Kind)
	case query.Has("verbose"):
		_, _ = fmt.Fprintf(w, "%s%s check passed\n", out, h.Kind)
	default:
		_, _ = fmt.Fprint(w, "ok")
	}
}

// all runs all checks except for excluded ones.
func (h *Health) all(ctx context.Context, excluded []string) (text string, failed bool) {
	var out strings.Builder
	for i := range h.Checks {
		c := &h.Checks[i]
		switch {
		case slices.Contains(excluded, c.Name):
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.Name)
		case c.Group != "" && slices.Contains(excluded, c.Group):
			fmt.Fprintf(&out, "[+]%s excluded with %s: ok\n", c.Name, c.Group)
		case h.run(ctx, c) != nil:
			failed = true
			fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", c.Name)
		default:
			fmt.Fprintf(&out, "[+]%s ok\n", c.Name)
		}
	}
	var unknown []string
	for _, name := range excluded {
		if !slices.ContainsFunc(h.Checks, func(c Check) bool { return name != "" && (c.Name == name || c.Group == name) }) {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		fmt.Fprintf(&out, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(slices.Compact(unknown), ","))
	}
	return out.String(), failed
}

func (h *Health) serveOne(w http.ResponseWriter, r *http.Request, name string) {
	i := slices.IndexFunc(h.Checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		h.NotFound(w, r)
		return
	}
	plainText(w)
	if err := h.run(r.Context(), &h.Checks[i]); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "internal server error: %v\n", err)
		return
	}
	_, _ = fmt.Fprint(w, "ok")
}

// run runs a check and records its result.
func (h *Health) run(ctx context.Context, c *Check) error {
	err := c.Run(ctx)
	h.Results.note(h.Kind, c.Name, err)
	if err != nil {
		h.Failed(c.Name, err)
	}
	return err
}

func plainText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", textType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// HealthMetrics holds the results of health checks; they have a page of their own (KEP-3466).
type HealthMetrics struct {
	registry *prometheus.Registry
	last     *prometheus.GaugeVec
	results  *prometheus.CounterVec
}

// NewHealthMetrics makes the metrics of one component.
func NewHealthMetrics() *HealthMetrics {
	m := &HealthMetrics{
		registry: prometheus.NewRegistry(),
		last:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_healthcheck", Help: "This metric records the result of a single healthcheck."}, []string{"type", "name"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubernetes_healthchecks_total", Help: "This metric records the results of all healthcheck."},
			[]string{"type", "name", "status"}),
	}
	m.registry.MustRegister(m.last, m.results)
	return m
}

// Handler serves /metrics/slis.
func (m *HealthMetrics) Handler() http.Handler {
	return Metrics(m.registry)
}

func (m *HealthMetrics) note(kind, name string, err error) {
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	m.last.WithLabelValues(kind, name).Set(value)
	m.results.WithLabelValues(kind, name, status).Inc()
}

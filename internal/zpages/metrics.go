package zpages

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/knarr-project/knarr/internal/version"
)

// Collectors returns the common metrics of every process, under upstream's names: Go's, the
// process's, and the version.
func Collectors() []prometheus.Collector {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_build_info",
		Help: "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running."},
		[]string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"})
	info := version.Info()
	build.WithLabelValues(info.Major, info.Minor, info.GitVersion, info.GitCommit, info.GitTreeState, info.BuildDate, info.GoVersion, info.Compiler, info.Platform).Set(1)
	spoken := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "version_info",
		Help: "Provides the compatibility version info of the component. The component label is the name of the component, usually kube, but is relevant for aggregated-apiservers."},
		[]string{"binary", "component", "emulation", "min_compat"})
	spoken.WithLabelValues(strings.TrimPrefix(version.Kubernetes, "v"), "kube", info.EmulationMajor+"."+info.EmulationMinor, info.MinCompatibilityMajor+"."+info.MinCompatibilityMinor).Set(1)
	return []prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build, spoken,
	}
}

// began approximates the start time of the process.
var began = time.Now()

// Metrics serves the metrics of a registry for any method, as upstream does. The exception is
// DELETE: upstream resets the metrics, and this handler refuses.
func Metrics(from prometheus.Gatherer) http.Handler {
	page := promhttp.HandlerFor(from, promhttp.HandlerOpts{ProcessStartTime: began})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "metrics cannot be reset", http.StatusMethodNotAllowed)
			return
		}
		page.ServeHTTP(w, r)
	})
}

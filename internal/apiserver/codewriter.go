package apiserver

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/flow"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/trace"
)

// codeWriter records what metrics and audit need to know of a response.
type codeWriter struct {
	http.ResponseWriter
	code    int
	written int64
	// seats are the flow control seats that the request occupies.
	seats flow.Ticket
	// waited is the request's time in a flow control queue.
	waited time.Duration
	// mutating and validating are nanoseconds spent in webhooks: the sum of the mutating ones, and
	// the slowest validating one.
	mutating, validating atomic.Int64
	// audit is the request's audit record.
	audit *audit.Record
	// began is called before the first byte of the response to a long-running request.
	began func(code int)
	// span is the request's span, if it is traced.
	span trace.Span
	// series are the request's metrics; nil until it is served. running is the gauge that counts
	// requests in progress.
	series  *requestSeries
	running prometheus.Gauge
	// ended counts the request's end in the metrics.
	ended func()
	// leaving makes the response the last on its connection.
	leaving *atomic.Bool
	// taken means that the response continues after its handler has returned. Its new owner then
	// reports the end.
	taken bool
}

// release ends the request. If the response was taken, it drops the references to the HTTP server's
// objects instead.
func (w *codeWriter) release() {
	if w.taken {
		w.ResponseWriter, w.began = nil, nil
		return
	}
	w.ended()
}

func (w *codeWriter) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *codeWriter) begin(code int) {
	if w.code != 0 {
		return
	}
	w.code = code
	if w.leaving != nil && w.leaving.Load() && code != http.StatusSwitchingProtocols {
		w.Header().Set("Connection", "close") // the HTTP/2 library turns it into a GOAWAY
	}
	if w.began != nil {
		w.began(code)
	}
}

func (w *codeWriter) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	var since time.Time
	if w.audit != nil {
		since = time.Now()
	}
	n, err := w.ResponseWriter.Write(b)
	w.written += int64(n)
	if w.audit != nil {
		w.audit.Spent(audit.Write, time.Since(since))
	}
	return n, err
}

// remark sends the authenticator's warnings to the client and its annotations to the audit log.
func (w *codeWriter) remark(remarks *auth.Remarks) {
	if remarks == nil {
		return
	}
	for _, text := range remarks.Warnings {
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			w.Header().Add("Warning", header)
		}
	}
	for key, value := range remarks.Annotations {
		w.audit.Annotate(key, value)
	}
}

// Webhooks implements admission.Stopwatch.
func (w *codeWriter) Webhooks(mutating bool, took time.Duration) {
	if mutating {
		w.mutating.Add(int64(took))
	} else {
		audit.AtLeast(&w.validating, took)
	}
	w.audit.Webhooks(mutating, took)
}

// Unwrap lets http.ResponseController find the connection's features.
func (w *codeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker, for libraries that do not use http.ResponseController.
func (w *codeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.begin(http.StatusSwitchingProtocols)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *codeWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Record is the audit record of the request; nil when there is none.
func (w *codeWriter) Record() *audit.Record { return w.audit }

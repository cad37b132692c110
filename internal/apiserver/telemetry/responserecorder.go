package telemetry

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

// ResponseRecorder records what metrics and audit need to know of a response.
type ResponseRecorder struct {
	http.ResponseWriter
	Code    int
	Written int64
	// Seats are the flow control seats that the request occupies.
	Seats flow.Ticket
	// Queued is the request's time in a flow control queue.
	Queued time.Duration
	// mutating and validating are nanoseconds spent in webhooks: the sum of the mutating ones, and
	// the slowest validating one.
	mutating, validating atomic.Int64
	// Audit is the request's audit record.
	Audit *audit.Record
	// OnBegin is called before the first byte of the response to a long-running request.
	OnBegin func(code int)
	// Span is the request's span, if it is traced.
	Span trace.Span
	// series are the request's metrics; nil until it is served. running is the gauge that counts
	// requests in progress.
	series  *requestSeries
	running prometheus.Gauge
	// OnEnd counts the request's end in the metrics.
	OnEnd func()
	// Closing makes the response the last on its connection.
	Closing *atomic.Bool
	// Deadline is when the server ends reading from an HTTP/1.1 client; zero: never. net/http then
	// cancels the contexts of later requests on the connection, so a response that begins later is
	// the last on it.
	Deadline time.Time
	// Detached means that the response continues after its handler has returned. Its new owner then
	// reports the end.
	Detached bool
}

// Release ends the request. If the response was taken, it drops the references to the HTTP server's
// objects instead.
func (w *ResponseRecorder) Release() {
	if w.Detached {
		w.ResponseWriter, w.OnBegin = nil, nil
		return
	}
	w.OnEnd()
}

// WriteHeader implements http.ResponseWriter.
func (w *ResponseRecorder) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *ResponseRecorder) begin(code int) {
	if w.Code != 0 {
		return
	}
	w.Code = code
	if w.Closing != nil && w.Closing.Load() && code != http.StatusSwitchingProtocols {
		w.Header().Set("Connection", "close") // the HTTP/2 library turns it into a GOAWAY
	}
	late := !w.Deadline.IsZero() && !time.Now().Before(w.Deadline)
	if late && code != http.StatusSwitchingProtocols {
		w.Header().Set("Connection", "close")
	}
	if w.OnBegin != nil {
		w.OnBegin(code)
	}
}

// Write implements http.ResponseWriter.
func (w *ResponseRecorder) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	var since time.Time
	if w.Audit != nil {
		since = time.Now()
	}
	n, err := w.ResponseWriter.Write(b)
	w.Written += int64(n)
	if w.Audit != nil {
		w.Audit.AddLatency(audit.Write, time.Since(since))
	}
	return n, err
}

// AddRemarks sends the authenticator's warnings to the client and its annotations to the audit log.
func (w *ResponseRecorder) AddRemarks(remarks *auth.Remarks) {
	if remarks == nil {
		return
	}
	for _, text := range remarks.Warnings {
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			w.Header().Add("Warning", header)
		}
	}
	for key, value := range remarks.Annotations {
		w.Audit.Annotate(key, value)
	}
}

// Webhooks implements admission.Stopwatch.
func (w *ResponseRecorder) Webhooks(mutating bool, took time.Duration) {
	if mutating {
		w.mutating.Add(int64(took))
	} else {
		audit.RaiseTo(&w.validating, took)
	}
	w.Audit.Webhooks(mutating, took)
}

// Unwrap lets http.ResponseController find the connection's features.
func (w *ResponseRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker, for libraries that do not use http.ResponseController.
func (w *ResponseRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.begin(http.StatusSwitchingProtocols)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Flush implements http.Flusher.
func (w *ResponseRecorder) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Record is the audit record of the request; nil when there is none.
func (w *ResponseRecorder) Record() *audit.Record { return w.Audit }

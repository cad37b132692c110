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

// codeWriter remembers what metrics and audit want to know of a response.
type codeWriter struct {
	http.ResponseWriter
	code    int
	written int64
	// seats are what the request occupies.
	seats flow.Ticket
	// waited is how long the request stood in a queue.
	waited time.Duration
	// mutating and validating are how long webhooks kept the request waiting, in nanoseconds: all of the former, the slowest of the latter.
	mutating, validating atomic.Int64
	// audit is the request's record.
	audit *audit.Record
	// began is called before the first byte of a response to a request that lives long.
	began func(code int)
	// span is the request's, where it is recorded.
	span trace.Span
	// series are the metrics that count the request; nil until it is served. running is the gauge that counts it meanwhile.
	series  *requestSeries
	running prometheus.Gauge
	// ended counts the request's end in the metrics.
	ended func()
	// leaving: the answer is the last on its connection.
	leaving *atomic.Bool
	// taken: the response goes on after its handler has returned, and whoever has taken it says when it ends.
	taken bool
}

// release ends the request unless it was taken out of its handler; then nothing holds on to the HTTP server's part of it.
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
		w.Header().Set("Connection", "close") // over HTTP/2 the library makes a GOAWAY of it
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

// remark tells the client and the audit log what there is to say of the request's credentials.
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

// Unwrap lets http.ResponseController find what the connection can do.
func (w *codeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack and Flush are for libraries that look for them themselves.
func (w *codeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.begin(http.StatusSwitchingProtocols)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *codeWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// recordOf is the audit record of the request that w answers; nil when there is none.
func recordOf(w http.ResponseWriter) *audit.Record {
	if cw, ok := w.(*codeWriter); ok {
		return cw.audit
	}
	return nil
}

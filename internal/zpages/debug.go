package zpages

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"

	"k8s.io/klog/v2"
)

// LogLevel is the level of the process's log.
var LogLevel slog.LevelVar

// Debug serves the process's profiles (CPU, heap, goroutines, ...) and its log level at upstream's
// paths. As for every path, authorization decides who can read and change them.
func Debug(mux *http.ServeMux) {
	Profiles(mux)
	Flags(mux)
}

// Profiles serves the process's profiles.
func Profiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"/", http.StatusFound)
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// Flags serves the process's log level.
func Flags(mux *http.ServeMux) {
	mux.HandleFunc("/debug/flags/v", serveVerbosity)
	for _, path := range []string{"/debug/flags", "/debug/flags/{$}"} {
		mux.HandleFunc(path, serveFlags)
	}
}

// flagsIndex lists the flags that can be changed at run time: PUT /debug/flags/NAME.
const flagsIndex = `<!DOCTYPE html>
<title>flags</title>
<ul>
<li>v: how much is logged
</ul>
`

// serveFlags lists what can be set.
func serveFlags(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, flagsIndex) // the client may have disconnected
}

// mostVerbose is the highest level in use. longestVerbosity limits the body's length.
const mostVerbose, longestVerbosity = 10, 16

// serveVerbosity sets the log level from a klog level: 0 is info, 4 and above is debug.
func serveVerbosity(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fail := func(code int, text string) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text+"\n") // the client may have disconnected
	}
	if r.Method != http.MethodPut {
		fail(http.StatusNotAcceptable, "unsupported http method")
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, longestVerbosity))
	if err != nil {
		fail(http.StatusBadRequest, "error reading request body: "+err.Error())
		return
	}
	n, err := strconv.ParseUint(string(body), 10, 31)
	if err != nil {
		fail(http.StatusBadRequest, err.Error())
		return
	}
	var level klog.Level
	if err := level.Set(strconv.FormatUint(n, 10)); err != nil {
		fail(http.StatusBadRequest, err.Error())
		return
	}
	LogLevel.Set(slog.Level(-int(min(n, mostVerbose))))
	_, _ = fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d\n", n)
}

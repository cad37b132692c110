package apiserver

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// PreAuth holds settings that apply to every request, before authentication. The zero value does
// nothing.
type PreAuth struct {
	// Origins match the origins of pages whose scripts may use this server (CORS).
	Origins []*regexp.Regexp
	// StrictTransport is the Strict-Transport-Security header for browsers (RFC 6797).
	StrictTransport string
	// GoAway is the fraction of HTTP/2 requests after which the client is told to open a new
	// connection.
	GoAway float64
	// Page serves the files of the page in the browser, at /ui and below, to everybody; nil serves
	// none.
	Page http.Handler
}

// handle sets the headers. It returns true if it has answered the request.
func (f *PreAuth) handle(w http.ResponseWriter, r *http.Request, goAway func(http.ResponseWriter, *http.Request)) bool {
	header := w.Header()
	if f.StrictTransport != "" && r.TLS != nil {
		header.Set("Strict-Transport-Security", f.StrictTransport)
	}
	if f.GoAway > 0 && r.ProtoMajor == 2 && rand.Float64() < f.GoAway {
		goAway(w, r)
	}
	if f.Page != nil && (r.URL.Path == "/ui" || strings.HasPrefix(r.URL.Path, "/ui/")) {
		f.Page.ServeHTTP(w, r)
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.ContainsFunc(f.Origins, func(allowed *regexp.Regexp) bool { return allowed.MatchString(origin) }) {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH")
	header.Set("Access-Control-Allow-Headers", "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since")
	header.Set("Access-Control-Expose-Headers", "Date")
	header.Set("Access-Control-Allow-Credentials", "true")
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	return false
}

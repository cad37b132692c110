package apiserver

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"

	"github.com/knarr-project/knarr/internal/apiserver/h2"
)

// Front is what is said of requests whoever they are from. The zero value says nothing.
type Front struct {
	// Origins are those of pages of other servers whose scripts may ask this one (CORS).
	Origins []*regexp.Regexp
	// StrictTransport is how long and for which names browsers are to come with HTTPS only (RFC 6797).
	StrictTransport string
	// GoAway is the part of requests over HTTP/2 whose client is told to make the next ones over another connection.
	GoAway float64
}

// answer says it, and tells whether that is all that there is to say to the request.
func (f *Front) answer(w http.ResponseWriter, r *http.Request) bool {
	header := w.Header()
	if f.StrictTransport != "" && r.TLS != nil {
		header.Set("Strict-Transport-Security", f.StrictTransport)
	}
	if f.GoAway > 0 && r.ProtoMajor == 2 && rand.Float64() < f.GoAway {
		h2.GoAway(r.Context())
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

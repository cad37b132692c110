package session

import (
	"net/http"
	"strings"

	"github.com/knarr-project/knarr/internal/auth"
)

// Headers and cookie of the page's requests.
const (
	// ProofHeader, with the value 1, shows that a script made the request: forms, links and other
	// sites cannot send it, unless the server allows their origin by CORS.
	ProofHeader = "X-Knarr-UI"
	// CodeHeader carries the code of a link to SessionPath.
	CodeHeader = "X-Knarr-UI-Code"
	// Cookie carries the session. Browsers accept a name with __Host- only with Secure, with path /
	// and for this host alone.
	Cookie = "__Host-knarr-ui"

	// asHeader tells the handler of LinksPath that the request is impersonated.
	asHeader = "X-Knarr-UI-As"
	// refusedHeader tells a second look at a request that the first one has refused its session.
	refusedHeader = "X-Knarr-UI-Refused"
)

// Headers as net/http spells them.
var canonicalCode, canonicalRefused = http.CanonicalHeaderKey(CodeHeader), http.CanonicalHeaderKey(refusedHeader)

// Authenticate implements auth.Authenticator. It must be asked before all others, since it removes
// the session from the request. The API server may ask twice.
func (s *Sessions) Authenticate(r *http.Request) (auth.User, bool, error) {
	if len(r.Header[canonicalRefused]) > 0 {
		return auth.User{}, false, ErrEnded
	}
	user, ok, err := s.authenticate(r)
	if err != nil {
		r.Header.Set(refusedHeader, "1")
	}
	return user, ok, err
}

func (s *Sessions) authenticate(r *http.Request) (auth.User, bool, error) {
	code, coded := r.Header[canonicalCode]
	cookie := ""
	if len(r.Header["Cookie"]) > 0 {
		cookie = takeCookie(r.Header)
	}
	if r.URL.Path == LinksPath {
		markImpersonated(r.Header)
	}
	switch {
	case coded:
		r.Header.Del(CodeHeader)
		if r.URL.Path != SessionPath || r.Method != http.MethodPost || len(code) != 1 {
			return auth.User{}, false, ErrBadCode
		}
		if !proven(r) {
			return auth.User{}, false, ErrNotProof
		}
		user, err := s.redeem(code[0])
		return user, err == nil, err
	case cookie == "":
		return auth.User{}, false, nil
	case !proven(r):
		return auth.User{}, false, ErrNotProof
	}
	user, err := s.user(cookie)
	return user, err == nil, err
}

// proven reports whether the page made the request. A script of another site cannot set the
// header, and browsers tell that site's origin. A WebSocket has no header of its own, but always an
// origin. Documents, frames and scripts are refused, so that HTML of a proxied program never gets
// the user's rights.
func proven(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	switch {
	case origin != "" && origin != "https://"+r.Host:
		return false
	case only(r.Header, "Sec-Fetch-Site", "same-origin"), only(r.Header, "Sec-Fetch-Dest", "empty", "websocket"):
		return false
	case r.Header.Get(ProofHeader) == "1":
		return true
	}
	return origin != "" && r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// only reports whether a header is present with another value than the allowed ones.
func only(h http.Header, name string, allowed ...string) bool {
	for _, value := range h.Values(name) {
		found := false
		for _, a := range allowed {
			found = found || value == a
		}
		if !found {
			return true
		}
	}
	return false
}

// takeCookie removes the session's cookies from the header and returns the only one; several are
// an attempt to confuse.
func takeCookie(h http.Header) string {
	var kept, found []string
	for _, line := range h["Cookie"] {
		for part := range strings.SplitSeq(line, ";") {
			part = strings.TrimSpace(part)
			name, value, _ := strings.Cut(part, "=")
			switch {
			case strings.TrimSpace(name) == Cookie:
				found = append(found, value)
			case part != "":
				kept = append(kept, part)
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	if h.Del("Cookie"); len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
	if len(found) > 1 || found[0] == "" {
		return "-" // no session's
	}
	return found[0]
}

// markImpersonated keeps the fact that a request is impersonated, since the API server removes the
// headers before the handler runs.
func markImpersonated(h http.Header) {
	h.Del(asHeader)
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Set(asHeader, "1")
			return
		}
	}
}

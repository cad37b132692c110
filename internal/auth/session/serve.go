package session

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
)

// Link is the answer of LinksPath.
type Link struct {
	// Path is the page with the code in its fragment, which browsers do not send.
	Path string `json:"path"`
	User string `json:"user"`
	// Expires is the end of the link, if it is not used.
	Expires time.Time `json:"expires"`
}

// Began is the answer of SessionPath to POST.
type Began struct {
	Expires time.Time `json:"expires"`
}

// page is the path that links lead to.
const page = "/ui/"

// Paths returns the handlers of this package, for requests that are authorized.
func (s *Sessions) Paths() map[string]http.Handler {
	return map[string]http.Handler{LinksPath: http.HandlerFunc(s.serveLinks), SessionPath: http.HandlerFunc(s.serveSession)}
}

func (s *Sessions) serveLinks(w http.ResponseWriter, r *http.Request) {
	user, ok := auth.UserFrom(r.Context())
	switch {
	case r.Method != http.MethodPost:
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	case !ok:
		http.Error(w, ErrProgram.Error(), http.StatusForbidden)
		return
	case r.Header.Get(asHeader) != "":
		http.Error(w, ErrAs.Error(), http.StatusForbidden)
		return
	}
	var ends time.Time
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		ends = r.TLS.PeerCertificates[0].NotAfter
	}
	code, err := s.Link(user, ends)
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	respond(w, Link{Path: page + "#code=" + code, User: user.Name, Expires: s.now().Add(LinkTime).UTC()})
}

func (s *Sessions) serveSession(w http.ResponseWriter, r *http.Request) {
	user, _ := auth.UserFrom(r.Context())
	switch r.Method {
	case http.MethodPost:
		cookie, ends, err := s.open(&user)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		http.SetCookie(w, cookieOf(cookie, int(ends.Sub(s.now()).Seconds())))
		respond(w, Began{Expires: ends.UTC()})
	case http.MethodDelete:
		s.end(&user)
		http.SetCookie(w, cookieOf("", -1))
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

func cookieOf(value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: Cookie, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

func statusOf(err error) int {
	if errors.Is(err, ErrFull) {
		return http.StatusTooManyRequests
	}
	return http.StatusForbidden
}

func respond(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer) // the client has gone
}

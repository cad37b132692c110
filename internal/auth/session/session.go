package session

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
)

// Paths of the API server. Access requires authorization for the path.
const (
	// LinksPath makes a link for the user of the request.
	LinksPath = "/knarr/v1/ui/links"
	// SessionPath begins a session (POST) with CodeHeader, and ends it (DELETE).
	SessionPath = "/knarr/v1/ui/session"
)

// Limits of links and sessions.
const (
	// LinkTime is how long a link is valid.
	LinkTime = time.Minute
	// CertificateTime limits sessions of users with a client certificate; they also end with it.
	CertificateTime = 8 * time.Hour
	// TokenTime limits sessions of other users, whose credentials expire at an unknown time.
	TokenTime = time.Hour
	// IdleTime ends a session without requests.
	IdleTime = time.Hour

	perUser = 16   // links and sessions each; a further one replaces the oldest
	inAll   = 1024 // links and sessions each; a further one is refused
)

// ExtraSession is the extra key of the session that authenticated a user. Its value is no secret.
const ExtraSession = "ui.knarr.dev/session"

// certificateID begins the credential id of users with a client certificate.
const certificateID = "X509SHA256="

// Errors of links and sessions.
var (
	ErrFull     = errors.New("too many sessions: try again later")
	ErrProgram  = errors.New("only people get a link: service accounts, nodes and anonymous users do not")
	ErrSession  = errors.New("a session makes no link: use the kubeconfig")
	ErrAs       = errors.New("an impersonated user gets no link")
	ErrBadCode  = errors.New("the link is unknown, used or older than a minute: make a new one with `knarr ui`")
	ErrEnded    = errors.New("the session of the page has ended: make a new link with `knarr ui`")
	ErrNotProof = errors.New("a session of the page is only for requests that the page itself makes")
)

type hash [sha256.Size]byte

// grant is a link, a link being exchanged, or a session.
type grant struct {
	id   string
	user auth.User
	made time.Time
	// until is when a link ends.
	until time.Time
	// ends is when the session ends at the latest, used when it was last used.
	ends, used time.Time
}

// Sessions holds the links and sessions of one server.
type Sessions struct {
	now func() time.Time

	mu       sync.Mutex // guards the maps and their grants
	links    map[hash]*grant
	opening  map[string]*grant // by id: authenticated by a code, not yet answered
	sessions map[hash]*grant
}

// New returns an empty Sessions; now is time.Now except in tests.
func New(now func() time.Time) *Sessions {
	return &Sessions{now: now, links: map[hash]*grant{}, opening: map[string]*grant{}, sessions: map[hash]*grant{}}
}

// Link makes a one-time code for the user. certificateEnds is when the user's client certificate
// expires; it counts only if the certificate authenticated the user.
func (s *Sessions) Link(user auth.User, certificateEnds time.Time) (code string, err error) {
	switch {
	case len(user.Extra[ExtraSession]) > 0:
		return "", ErrSession
	case isProgram(&user):
		return "", ErrProgram
	}
	now := s.now()
	ends := now.Add(TokenTime)
	if ids := user.Extra[auth.ExtraCredentialID]; len(ids) == 1 && strings.HasPrefix(ids[0], certificateID) {
		if ends = now.Add(CertificateTime); certificateEnds.Before(ends) {
			ends = certificateEnds
		}
	}
	code, at := secret()
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	g := &grant{id: hex.EncodeToString(id), made: now, until: now.Add(LinkTime), ends: ends}
	g.user = auth.User{Name: user.Name, UID: user.UID, Groups: slices.Clone(user.Groups), Extra: maps.Clone(user.Extra)}
	if g.user.Extra == nil {
		g.user.Extra = map[string][]string{}
	}
	g.user.Extra[ExtraSession] = []string{g.id}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	return code, admit(s.links, at, g)
}

// isProgram reports whether the user is anonymous, a service account, or a node.
func isProgram(user *auth.User) bool {
	return user.Name == auth.UserAnonymous || strings.HasPrefix(user.Name, "system:serviceaccount:") || strings.HasPrefix(user.Name, "system:node:") ||
		slices.Contains(user.Groups, auth.GroupUnauthenticated) || slices.Contains(user.Groups, auth.GroupNodes)
}

// admit adds a grant, within the limits.
func admit(to map[hash]*grant, at hash, g *grant) error {
	var oldest hash
	own := 0
	for h, other := range to {
		if other.user.Name != g.user.Name {
			continue
		}
		if own++; own == 1 || other.made.Before(to[oldest].made) {
			oldest = h
		}
	}
	if own >= perUser {
		delete(to, oldest)
	}
	if len(to) >= inAll {
		return ErrFull
	}
	to[at] = g
	return nil
}

// sweep removes ended links and sessions.
func (s *Sessions) sweep(now time.Time) {
	maps.DeleteFunc(s.links, func(_ hash, g *grant) bool { return !now.Before(g.until) })
	maps.DeleteFunc(s.opening, func(_ string, g *grant) bool { return !now.Before(g.until) })
	maps.DeleteFunc(s.sessions, func(_ hash, g *grant) bool { return g.ended(now) })
}

func (g *grant) ended(now time.Time) bool {
	return !now.Before(g.ends) || now.Sub(g.used) >= IdleTime
}

// redeem takes a link, whatever becomes of the request.
func (s *Sessions) redeem(code string) (auth.User, error) {
	at, ok := hashOf(code)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.links[at]
	if !ok || g == nil {
		return auth.User{}, ErrBadCode
	}
	delete(s.links, at)
	if !now.Before(g.until) {
		return auth.User{}, ErrBadCode
	}
	s.opening[g.id] = g
	return g.user, nil
}

// open begins the session of a redeemed link.
func (s *Sessions) open(user *auth.User) (cookie string, ends time.Time, err error) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	ids := user.Extra[ExtraSession]
	if len(ids) != 1 || s.opening[ids[0]] == nil {
		return "", ends, ErrBadCode
	}
	g := s.opening[ids[0]]
	delete(s.opening, ids[0])
	g.used = now
	cookie, at := secret()
	return cookie, g.ends, admit(s.sessions, at, g)
}

// user returns the user of a cookie.
func (s *Sessions) user(cookie string) (auth.User, error) {
	at, ok := hashOf(cookie)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.sessions[at]
	if !ok || g == nil {
		return auth.User{}, ErrEnded
	}
	if g.ended(now) {
		delete(s.sessions, at)
		return auth.User{}, ErrEnded
	}
	g.used = now
	return g.user, nil
}

// end ends the user's session.
func (s *Sessions) end(user *auth.User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := user.Extra[ExtraSession]
	maps.DeleteFunc(s.sessions, func(_ hash, g *grant) bool { return slices.Contains(ids, g.id) })
}

// secretBytes is the size of codes and cookies before they are encoded.
const secretBytes = 32

func secret() (text string, h hash) {
	raw := make([]byte, secretBytes)
	_, _ = rand.Read(raw) // never fails
	text = base64.RawURLEncoding.EncodeToString(raw)
	return text, sha256.Sum256([]byte(text))
}

// hashOf returns false for a text of another size than that of secrets.
func hashOf(text string) (hash, bool) {
	if len(text) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return hash{}, false
	}
	return sha256.Sum256([]byte(text)), true
}

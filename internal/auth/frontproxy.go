package auth

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// FrontProxyHeaders names the headers in which a front proxy passes the user. Of user and UID, the
// first header present counts; of groups and extras, all do.
type FrontProxyHeaders struct {
	User, UID, Group, ExtraPrefix []string
}

// RemoteHeaders are the headers that API servers use among themselves.
var RemoteHeaders = FrontProxyHeaders{
	User: []string{"X-Remote-User"}, UID: []string{"X-Remote-Uid"}, Group: []string{"X-Remote-Group"}, ExtraPrefix: []string{"X-Remote-Extra-"},
}

// FrontProxy authenticates requests that a trusted proxy forwards. The proxy presents a certificate
// of its own authority, and names the user in headers.
type FrontProxy struct {
	// Roots returns the proxies' authorities, which may change.
	Roots func() *x509.CertPool
	// Names lists the allowed common names; empty means any that the authority signed.
	Names   []string
	Headers FrontProxyHeaders
	Now     func() time.Time
}

// Authenticate implements Authenticator.
func (p FrontProxy) Authenticate(r *http.Request) (User, bool, error) {
	name := firstHeader(r.Header, p.Headers.User)
	if name == "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return User{}, false, nil
	}
	if _, err := verifyClient(r.TLS.PeerCertificates, p.Roots(), p.Now()); err != nil {
		// Another authenticator decides about this certificate. The headers are ignored.
		return User{}, false, nil
	}
	if common := r.TLS.PeerCertificates[0].Subject.CommonName; len(p.Names) > 0 && !slices.Contains(p.Names, common) {
		return User{}, false, fmt.Errorf("x509: subject with cn=%s is not in the allowed list", common)
	}
	user := User{Name: name, UID: firstHeader(r.Header, p.Headers.UID)}
	for _, h := range p.Headers.Group {
		for _, group := range r.Header.Values(h) {
			if group != "" {
				user.Groups = append(user.Groups, group)
			}
		}
	}
	for _, prefix := range p.Headers.ExtraPrefix {
		for key, values := range extraHeaders(r.Header, prefix) {
			if user.Extra == nil {
				user.Extra = map[string][]string{}
			}
			user.Extra[key] = append(user.Extra[key], values...)
		}
	}
	p.Headers.remove(r.Header)
	return user, true, nil
}

// remove deletes the headers from a request, so that no later stage trusts them again.
func (h FrontProxyHeaders) remove(header http.Header) {
	for _, names := range [...][]string{h.User, h.UID, h.Group} {
		for _, name := range names {
			header.Del(name)
		}
	}
	for _, prefix := range h.ExtraPrefix {
		deletePrefix(header, prefix)
	}
}

func firstHeader(header http.Header, names []string) string {
	var value string
	for _, name := range names {
		value = cmp.Or(value, header.Get(name))
	}
	return value
}

// extraHeaders reads PREFIXkey headers. Keys are lower case and percent encoded.
func extraHeaders(header http.Header, prefix string) map[string][]string {
	var extra map[string][]string
	for h, values := range header {
		if len(h) < len(prefix) || !strings.EqualFold(h[:len(prefix)], prefix) {
			continue
		}
		key := strings.ToLower(h[len(prefix):])
		if decoded, err := url.PathUnescape(key); err == nil {
			key = decoded
		}
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = append(extra[key], values...)
	}
	return extra
}

func deletePrefix(header http.Header, prefix string) {
	for h := range header {
		if len(h) >= len(prefix) && strings.EqualFold(h[:len(prefix)], prefix) {
			delete(header, h)
		}
	}
}

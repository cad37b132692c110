package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Page configures the page in the browser.
type Page struct {
	// Served is on or off. Off serves neither the page nor links to it.
	Served string
	// OIDCSecretFile has the secret of the page as a client of OpenID Connect issuers; "" is a
	// public client.
	OIDCSecretFile string
	// OIDCScopes are asked for at the log-in by OpenID Connect.
	OIDCScopes []string
}

// Values of Page.Served.
const (
	pageOn  = "on"
	pageOff = "off"
)

// scopeOpenID makes a request one of OpenID Connect.
const scopeOpenID = "openid"

func defaultPage() Page {
	return Page{Served: pageOn, OIDCScopes: []string{scopeOpenID, "profile", "email"}}
}

// On reports whether the page is served.
func (p *Page) On() bool { return p.Served != pageOff }

func (p *Page) addFlags(f *pflag.FlagSet) {
	f.StringVar(&p.Served, "ui", p.Served, "`ON` serves the page in the browser at /ui/: on or off\nWith off, `knarr ui` gets no link either.")
	values(f, "ui", pageOn, pageOff)
	f.StringVar(&p.OIDCSecretFile, "ui-oidc-client-secret-file", p.OIDCSecretFile, "`FILE` with the secret of the page as a client of OpenID Connect issuers\nWithout it the page is a public client; PKCE protects its log-in either way. The file is read at each log-in.")
	f.StringSliceVar(&p.OIDCScopes, "ui-oidc-scopes", p.OIDCScopes, "`SCOPES` that the page asks OpenID Connect issuers for, openid among them")
}

func (p *Page) validate(bad func(field, value, allowed string)) {
	if p.Served != pageOn && p.Served != pageOff {
		bad("ui", p.Served, "on or off")
	}
	if !slices.Contains(p.OIDCScopes, scopeOpenID) {
		bad("ui-oidc-scopes", strings.Join(p.OIDCScopes, ","), "openid among the scopes")
	}
}

package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Authentication configures authentication in addition to the cluster's own certificates and
// tokens.
type Authentication struct {
	// ClientCA is a file of CAs for client certificates, in addition to the cluster's own. Changes
	// need no restart.
	ClientCA string
	// Config is an AuthenticationConfiguration file: token issuers, anonymous requests. Changes
	// need no restart.
	Config string
	// Anonymous accepts requests without credentials as system:anonymous. Nil does too, unless
	// Config says otherwise.
	Anonymous *bool
	// BootstrapTokens accepts the tokens of joining nodes, which are Secrets in kube-system.
	BootstrapTokens bool
	OIDC            OIDC
	RequestHeader   RequestHeader
}

// OIDC is a single token issuer, configured by flags.
type OIDC struct {
	Issuer         string
	ClientID       string
	CA             string
	UsernameClaim  string
	UsernamePrefix string
	GroupsClaim    string
	GroupsPrefix   string
	RequiredClaims map[string]string
	SigningAlgs    []string
}

// RequestHeader is a proxy that passes the user's name in headers.
type RequestHeader struct {
	ClientCA            string
	AllowedNames        []string
	UsernameHeaders     []string
	UIDHeaders          []string
	GroupHeaders        []string
	ExtraHeaderPrefixes []string
}

func defaultAuthentication() Authentication {
	return Authentication{BootstrapTokens: true, OIDC: defaultOIDC()}
}

func defaultOIDC() OIDC { return OIDC{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}} }

func (c *Authentication) addFlags(f *pflag.FlagSet) {
	topic(f, Authenticating, func(f *pflag.FlagSet) {
		f.StringVar(&c.ClientCA, "client-ca-file", c.ClientCA, "`FILE` of CAs for client certificates, in addition to the cluster's own, PEM\nChanges need no restart.")
		f.Var(&optionalBool{&c.Anonymous}, "anonymous-auth", "accept requests without credentials, as system:anonymous (default: true)\nNot together with rules for anonymous requests in --authentication-config.")
		f.Lookup("anonymous-auth").NoOptDefVal = "true"
		f.BoolVar(&c.BootstrapTokens, "enable-bootstrap-token-auth", c.BootstrapTokens, "accept the tokens of nodes that join\nThey are Secrets of type bootstrap.kubernetes.io/token in kube-system.")
		f.StringVar(&c.Config, "authentication-config", c.Config, "AuthenticationConfiguration `FILE`: issuers of JSON Web Tokens, rules for anonymous requests\nInstead of the --oidc flags. Changes need no restart.")
		c.OIDC.addFlags(f)
		c.RequestHeader.addFlags(f)
	})
}

func (o *OIDC) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Issuer, "oidc-issuer-url", o.Issuer, "HTTPS `URL` of an OpenID Connect issuer of JSON Web Tokens")
	f.StringVar(&o.ClientID, "oidc-client-id", o.ClientID, "`ID` that must be an audience of its tokens; required with the URL")
	f.StringVar(&o.CA, "oidc-ca-file", o.CA, "CA `FILE` for the issuer's HTTPS, PEM (default: the machine's CAs)")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "`CLAIM` with the user's name")
	f.StringVar(&o.UsernamePrefix, "oidc-username-prefix", o.UsernamePrefix, "`PREFIX` of user names; - means no prefix (default: ISSUER#, none for the claim email)")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", o.GroupsClaim, "`CLAIM` with the user's groups, a text or a list")
	f.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", o.GroupsPrefix, "`PREFIX` of group names")
	f.StringToStringVar(&o.RequiredClaims, "oidc-required-claim", o.RequiredClaims, "claim that a token must have, as `KEY=VALUE`; can be repeated")
	f.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", o.SigningAlgs, "`ALGORITHMS` of accepted signatures")
	values(f, "oidc-signing-algs", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")
}

func (h *RequestHeader) addFlags(f *pflag.FlagSet) {
	f.StringVar(&h.ClientCA, "requestheader-client-ca-file", h.ClientCA, "CA `FILE` for proxies that name the user in headers, PEM")
	f.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", h.AllowedNames, "common `NAMES` of those proxies' certificates (default: any)")
	f.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", h.UsernameHeaders, "`HEADERS` with the user's name, commonly X-Remote-User")
	f.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", h.UIDHeaders, "`HEADERS` with the user's UID, commonly X-Remote-Uid")
	f.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", h.GroupHeaders, "`HEADERS` with the user's groups, commonly X-Remote-Group")
	f.StringSliceVar(&h.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", h.ExtraHeaderPrefixes, "`PREFIXES` of headers with more about the user, commonly X-Remote-Extra-")
}

// optionalBool is a flag that can be unset.
type optionalBool struct{ value **bool }

func (b *optionalBool) String() string {
	if b.value == nil || *b.value == nil {
		return ""
	}
	return strconv.FormatBool(**b.value)
}

func (b *optionalBool) Set(text string) error {
	value, err := strconv.ParseBool(text)
	if err == nil {
		*b.value = &value
	}
	return err
}

func (b *optionalBool) Type() string { return "bool" }

// Set reports whether an issuer is configured.
func (o *OIDC) Set() bool {
	d := defaultOIDC()
	return o.Issuer != "" || o.ClientID != "" || o.CA != "" || o.UsernameClaim != d.UsernameClaim || o.UsernamePrefix != "" || o.GroupsClaim != "" ||
		o.GroupsPrefix != "" || len(o.RequiredClaims) > 0 || !slices.Equal(o.SigningAlgs, d.SigningAlgs)
}

func (c *Authentication) validate(bad func(field, value, allowed string)) {
	if c.Config != "" && c.OIDC.Set() {
		bad("authentication-config", c.Config, "no oidc-* flags beside it: authentication-config file and oidc-* flags are mutually exclusive")
	}
	if o := &c.OIDC; o.Set() && (o.Issuer == "" || o.ClientID == "") {
		bad("oidc-issuer-url", o.Issuer, "oidc-issuer-url and oidc-client-id specified together when any oidc-* flags are set")
	}
	h := &c.RequestHeader
	for name, list := range map[string][]string{
		"requestheader-username-headers": h.UsernameHeaders, "requestheader-uid-headers": h.UIDHeaders,
		"requestheader-group-headers": h.GroupHeaders, "requestheader-extra-headers-prefix": h.ExtraHeaderPrefixes,
	} {
		for _, header := range list {
			if strings.TrimSpace(header) == "" {
				bad(name, fmt.Sprint(list), "names of headers, none of them empty")
			}
		}
	}
}
